//! What may stop or bend a turn. Each guard looks at the turn before every request to the model; the turn asks them in
//! order and knows none by name.

pub mod compaction;
pub mod iterations;
pub mod lost;
pub mod plan;
pub mod repeats;
pub mod warning;

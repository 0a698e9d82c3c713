//! Guards, which may stop or modify a turn. The turn calls each guard in order before every request to the model, and
//! knows them only by their trait.

pub mod compaction;
pub mod iterations;
pub mod lost;
pub mod plan;
pub mod repeats;
pub mod warning;

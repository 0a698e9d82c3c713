//! The grammar of Markdown, for the terminal and for chat services. No I/O.
//!
//! [`line`] parses the start of a line, [`inline`] the marks within it, [`table`] the cells of a table, [`code`] the
//! tokens of fenced code. All of them take incomplete text, because the terminal shows an answer while it arrives.

pub mod code;
pub mod code_block;
pub mod document;
pub mod inline;
pub mod line;
pub mod style;
pub mod table;

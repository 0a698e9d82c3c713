//! What may stop or bend a turn.

//! Locks whose poison is ignored.
//!
//! A panic while a lock is held poisons it. A panic ends one turn, one call or one thread here and is reported, and the
//! values behind our locks are whole between two statements. So the other threads go on.

use std::sync::LockResult;

/// Lets a holder go on although another thread panicked while it held the lock.
pub trait IgnorePoison {
    type Value;

    fn ignore_poison(self) -> Self::Value;
}

impl<T> IgnorePoison for LockResult<T> {
    type Value = T;

    fn ignore_poison(self) -> T {
        self.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

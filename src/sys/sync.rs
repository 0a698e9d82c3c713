//! Locks that ignore poisoning.
//!
//! A panic while a lock is held poisons it. In this program a panic ends one turn, one call or one thread, and is
//! reported; the values behind the locks are consistent between any two statements. So other threads can continue.

use std::sync::LockResult;

/// Acquires a lock even if another thread panicked while holding it.
pub trait IgnorePoison {
    /// The lock's guard.
    type Value;

    /// Returns the guard, poisoned or not.
    fn ignore_poison(self) -> Self::Value;
}

impl<T> IgnorePoison for LockResult<T> {
    type Value = T;

    fn ignore_poison(self) -> T {
        self.unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

//! Values that are computed when they are needed. A [`LazyLock`] cannot be cloned, and the type of its closure is part of its own.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, LazyLock};

/// A value that is computed when it is first used. Clones share it.
#[derive(Clone)]
pub struct Deferred<T>(Arc<LazyLock<T, ComputeValue<T>>>);

type ComputeValue<T> = Box<dyn FnOnce() -> T + Send>;

impl<T> Deferred<T> {
    /// Creates the value that `compute` returns.
    pub fn new(compute: impl FnOnce() -> T + Send + 'static) -> Self {
        Self(Arc::new(LazyLock::new(Box::new(compute))))
    }

    /// Computes the value now, if it was not computed before.
    pub fn force(&self) {
        LazyLock::force(&self.0);
    }
}

impl<T> Deref for Deferred<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: Send + 'static> From<T> for Deferred<T> {
    fn from(value: T) -> Self {
        Self::new(|| value)
    }
}

impl<T: Default + Send + 'static> Default for Deferred<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T: fmt::Debug> fmt::Debug for Deferred<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::Deferred;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[test]
    fn a_deferred_value_is_computed_once_for_all_clones() {
        let calls = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&calls);
        let one = Deferred::new(move || counter.fetch_add(1, Ordering::Relaxed));
        let other = one.clone();
        assert_eq!(calls.load(Ordering::Relaxed), 0);
        other.force();
        assert_eq!((*one, *other), (0, 0));
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }
}

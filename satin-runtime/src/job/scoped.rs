//! Variables of a thread that have another value for the time of a call. What they had before comes back, also if the call panics.

use std::{
    cell::{Cell, RefCell},
    thread::LocalKey,
};

/// A variable of each thread.
type Local<T> = &'static LocalKey<Cell<T>>;

/// A list that what runs on this thread adds to, if somebody gathers.
type Gathered<T> = &'static LocalKey<RefCell<Option<Vec<T>>>>;

/// Runs `run` while the variable has that value.
pub(crate) fn with<T: Copy + 'static, R>(
    variable: Local<T>,
    value: T,
    run: impl FnOnce() -> R,
) -> R {
    struct Outer<T: Copy + 'static>(Local<T>, T);

    impl<T: Copy + 'static> Drop for Outer<T> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }

    let _outer = Outer(variable, variable.replace(value));
    run()
}

/// Runs `run` with an empty list. Gives beside its result what has been added.
pub(super) fn gather<T: 'static, R>(list: Gathered<T>, run: impl FnOnce() -> R) -> (R, Vec<T>) {
    struct Outer<T: 'static>(Gathered<T>, Option<Vec<T>>);

    impl<T: 'static> Drop for Outer<T> {
        fn drop(&mut self) {
            self.0.set(self.1.take());
        }
    }

    let _outer = Outer(list, list.replace(Some(Vec::new())));
    let result = run();
    (result, list.take().unwrap_or_default())
}

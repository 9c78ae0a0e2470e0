//! The shared values that a job or a result mentions: noted while it is serialized, fetched by the receiver before it is
//! read.

use std::cell::{Cell, RefCell};

use super::ValueName;

thread_local! {
    /// The names gathered so far; `None` as long as no caller gathers.
    static NOTED: RefCell<Option<Vec<ValueName>>> = const { RefCell::new(None) };
    /// True while a value is only looked at, and goes nowhere.
    static LOOKING: Cell<bool> = const { Cell::new(false) };
}

/// Runs `serialize` and gives beside its result the values that it noted, each once.
pub fn gather<R>(serialize: impl FnOnce() -> R) -> (R, Vec<ValueName>) {
    /// The names that a caller further out has gathered so far; restored also if `serialize` panics.
    struct Outer(Option<Vec<ValueName>>);

    impl Drop for Outer {
        fn drop(&mut self) {
            NOTED.set(self.0.take());
        }
    }

    let _outer = Outer(NOTED.replace(Some(Vec::new())));
    let result = serialize();
    (result, NOTED.take().unwrap_or_default())
}

/// As [`gather`], of a value that stays: the values that it mentions need not be kept for a receiver.
pub fn look<R>(serialize: impl FnOnce() -> R) -> (R, Vec<ValueName>) {
    /// Restored also if `serialize` panics.
    struct Outer(bool);

    impl Drop for Outer {
        fn drop(&mut self) {
            LOOKING.set(self.0);
        }
    }

    let _outer = Outer(LOOKING.replace(true));
    gather(serialize)
}

/// Notes that the value which is being serialized mentions this value. False if it need not be kept for a receiver.
pub fn note(name: ValueName) -> bool {
    NOTED.with_borrow_mut(|noted| {
        let Some(names) = noted else { return false };
        if !names.contains(&name) {
            names.push(name);
        }
        !LOOKING.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(number: u8) -> ValueName {
        ValueName([number; 32])
    }

    #[test]
    fn each_value_is_noted_once_and_only_inside() {
        assert!(!note(name(1)));
        let (result, names) = gather(|| {
            note(name(2));
            note(name(3));
            note(name(2));
            7
        });
        assert_eq!((result, names), (7, vec![name(2), name(3)]));
        assert_eq!(gather(|| ()).1, vec![]);
        assert_eq!(look(|| note(name(4))), (false, vec![name(4)]));
        assert!(gather(|| note(name(5))).0);
    }

    #[test]
    fn gathering_within_gathering_keeps_the_two_apart() {
        let ((), outer) = gather(|| {
            note(name(1));
            assert_eq!(gather(|| note(name(2))), (true, vec![name(2)]));
            note(name(3));
        });
        assert_eq!(outer, vec![name(1), name(3)]);
    }

    #[test]
    fn a_panic_leaves_nothing_behind() {
        let ((), outer) = gather(|| {
            note(name(1));
            let inner = std::panic::catch_unwind(|| {
                gather(|| {
                    note(name(2));
                    std::panic::resume_unwind(Box::new(()));
                })
            });
            assert!(inner.is_err());
        });
        assert_eq!(outer, vec![name(1)]);
    }
}

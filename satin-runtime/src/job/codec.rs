//! Where values of the user become bytes, and bytes values: nothing else calls `Serialize` or `Deserialize` of a job's
//! arguments and results, of shared values, or of offers.
//!
//! `Serialize` and `Deserialize` are code of the user. Such code may panic, which is an error like another here. It
//! recurses as deep as the value is nested: each level writes or reads at least one byte, so a look at the stack with
//! each byte finds the end of the stack before the system does. And it may take long, or write a value of a gibibyte: a
//! thread that cannot wait for that asks for [`Effort::QUICK`].
//!
//! A reader gets the value that was written, or an error. Fields that are left out, parts that are miscounted, and bytes that are left
//! over are errors. The first value of each type is read back before it leaves ([`write_for`]).

use std::{
    any::Any,
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
};

use postcard::{Deserializer, de_flavors, ser_flavors};
use serde::{Serialize, de::DeserializeOwned};

pub use super::fault::Fault;
use super::{
    fault::{self, Why},
    needs, numbers,
    occupation::{Activity, during},
    parcel::UNFIT,
    room,
    size::{Size, Sizer},
    trial::{self, Shape},
};

/// The most bytes that the arguments or the result of one job may take. Less, and large results are computed at home; more,
/// and one job fills the memory of two nodes.
pub const LARGEST: usize = 1 << 30;

/// Bytes that a quick writer may write.
const QUICK_BYTES: usize = 4 << 10;

/// Bytes for which there is room from the beginning: those of most arguments.
const AT_ONCE: usize = 64;

/// A value of more bytes is not read back on trial. Too small: a type all of whose values are large is never tried. Too large: the trial
/// takes as much memory again.
const MOST_TRIED: usize = 64 << 20;

/// Stack that a quick writer may use.
const QUICK_STACK: usize = 64 << 10;

/// Bytes of stack that are assumed on a thread whose stack has not been measured.
const UNMEASURED_STACK: usize = 1 << 20;

/// Reasons why a value could not be written or read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CodecError {
    /// Code of the user panicked.
    #[error("{what} panicked: {message}")]
    Panicked {
        /// The action that failed, as the beginning of a sentence.
        what: &'static str,
        /// The message of the panic.
        message: String,
    },
    /// The stack was nearly used up.
    #[error(
        "{what} failed: the value is nested too deeply for the rest of the stack of {stack_mib} MiB; set SATIN_STACK to \
         more MiB, or nest less (indices into a `Vec` instead of boxes)"
    )]
    TooDeep {
        /// The action that failed.
        what: &'static str,
        /// The whole stack of that thread.
        stack_mib: usize,
    },
    /// More bytes than were allowed.
    #[error("{what} failed: more than {most} bytes; divide the job, or pass a `Shared`")]
    TooLong {
        /// The action that failed.
        what: &'static str,
        /// The limit, in bytes.
        most: usize,
    },
    /// A quick writer met something that may take long.
    #[error("{what} may take long")]
    NotQuick {
        /// The action that failed.
        what: &'static str,
    },
    /// The linker dropped the function's registration.
    #[error("the function is not registered")]
    Unregistered,
    /// Jobs of the function stay where they are.
    #[error("the function has been told to be unfit to travel")]
    Unfit,
    /// Code of the user, or the format, says no.
    #[error("{what} failed: {fault}")]
    Faulty {
        /// The action that failed.
        what: &'static str,
        /// The fault of the type or the value.
        fault: Fault,
    },
}

impl CodecError {
    /// An error of the code or the format, with what was found on the way.
    fn of<T: ?Sized>(what: &'static str, error: postcard::Error) -> CodecError {
        let fault = fault::found::<T>(error);
        CodecError::Faulty { what, fault }
    }

    /// Does it hold for all values of the type, and not for this one alone?
    #[must_use]
    pub fn is_of_type(&self) -> bool {
        matches!(self, CodecError::Faulty { fault, .. } if fault.is_of_type())
    }

    /// How much it says of other jobs of the same function, see [`UNFIT`].
    pub(crate) fn weight(&self) -> u32 {
        match self {
            CodecError::Faulty { fault, .. } if fault.is_of_type() => UNFIT,
            CodecError::Faulty { .. } | CodecError::Panicked { .. } => 1,
            _ => 0,
        }
    }
}

/// How much may be done to write a value.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// The most bytes that may be written.
    most: usize,
    quick: bool,
    /// A quick writer may write and hash so many bytes of shared values that have no name yet.
    named: usize,
}

impl Effort {
    /// No limit but [`LARGEST`].
    pub const ANY: Effort = Effort {
        most: LARGEST,
        quick: false,
        named: 0,
    };
    /// A few microseconds: small and flat values, and of shared ones those that have a name already.
    pub const QUICK: Effort = Effort {
        most: QUICK_BYTES,
        quick: true,
        named: 0,
    };

    /// At most that number of bytes, however long that takes.
    #[must_use]
    pub const fn at_most(most: usize) -> Effort {
        Effort {
            most,
            quick: false,
            named: 0,
        }
    }

    /// The most bytes that may be written.
    #[must_use]
    pub const fn most(self) -> usize {
        self.most
    }

    /// At most that number of bytes, and as with [`Effort::QUICK`] no shared value without a name: to name it, all of it would be
    /// hashed.
    #[must_use]
    pub const fn up_to(most: usize) -> Effort {
        Effort {
            most,
            quick: true,
            named: 0,
        }
    }

    /// At most that number of bytes, and as many again of shared values that have no name yet.
    #[must_use]
    pub const fn keeping(most: usize) -> Effort {
        Effort {
            most,
            quick: true,
            named: most,
        }
    }
}

/// The stack of a thread.
#[derive(Clone, Copy)]
struct Stack {
    /// Code of the user must not go below this address.
    limit: usize,
    mib: usize,
}

thread_local! {
    /// The stack of this thread; `None` on threads whose stack has not been measured.
    static STACK: Cell<Option<Stack>> = const { Cell::new(None) };
    /// While a quick writer writes on this thread: the bytes of shared values without names that it may write and hash.
    static NAMED: Cell<Option<usize>> = const { Cell::new(None) };
    /// The most bytes that may be written for the value that is being written on this thread.
    static MOST: Cell<usize> = const { Cell::new(LARGEST) };
    /// What is written on this thread is only measured.
    static MEASURING: Cell<bool> = const { Cell::new(false) };
    /// Bytes that count for what is being measured on this thread, and are not there to be looked at.
    static ELSEWHERE: Cell<u64> = const { Cell::new(0) };
    /// A shared value had too many bytes for the quick writer.
    static TOO_LONG: Cell<bool> = const { Cell::new(false) };
}

/// The current end of the stack, as an address.
#[inline(always)]
pub fn stack_pointer() -> usize {
    let here = 0u8;
    std::hint::black_box(&raw const here).addr()
}

/// Notes that the running thread has a stack of `size` bytes, of which next to nothing is used yet.
pub fn measure_stack(size: usize) {
    // Half of what invocations leave to those that do not spawn: whatever runs may write something small.
    let margin = (size / 8).min(1 << 20) / 2;
    STACK.set(Some(Stack {
        limit: stack_pointer().saturating_sub(size - margin),
        mib: size >> 20,
    }));
}

fn stack() -> Stack {
    STACK.get().unwrap_or_else(|| Stack {
        limit: stack_pointer().saturating_sub(UNMEASURED_STACK),
        mib: UNMEASURED_STACK >> 20,
    })
}

/// The most bytes of a shared value without a name that may be written and hashed for what is being written on this thread; with
/// more the caller is to give up with an error. `None` if there is no such limit.
pub fn most_named() -> Option<usize> {
    NAMED.get()
}

/// The most bytes that may be written for the value that is being written on this thread.
pub fn most_bytes() -> usize {
    MOST.get()
}

/// Is what is being written on this thread only measured?
pub fn is_measuring() -> bool {
    MEASURING.get()
}

/// A shared value could not be named for what is being written on this thread.
pub fn has_failed(error: &CodecError) {
    TOO_LONG.set(matches!(error, CodecError::TooLong { .. }));
}

/// A shared value of so many bytes has been named for what is being written on this thread.
pub fn has_named(bytes: usize) {
    NAMED.set(NAMED.get().map(|most| most.saturating_sub(bytes)));
}

/// So many bytes more count for what is being measured on this thread, and are not there to be looked at.
pub fn has_elsewhere(bytes: u64) {
    ELSEWHERE.set(ELSEWHERE.get().saturating_add(bytes));
}

/// The limit that was met.
#[derive(Clone, Copy)]
enum Limit {
    Stack,
    Bytes,
}

/// Writes a value. `what` begins the error: "writing the arguments".
///
/// # Errors
/// If code of the user fails or panics, or a limit is met.
pub fn write<T: Serialize + ?Sized>(
    what: &'static str,
    value: &T,
    effort: Effort,
) -> Result<Vec<u8>, CodecError> {
    trial::apart(|| write_here(what, value, effort))
}

/// Writes a value that will be read as an `R`, as [`write()`] does. The first value of each type in it is read back: another one than was
/// written is an error.
///
/// # Errors
/// As [`write()`] and [`read`].
pub fn write_for<R: DeserializeOwned, T: Serialize + ?Sized>(
    what: &'static str,
    value: &T,
    effort: Effort,
) -> Result<Vec<u8>, CodecError> {
    let of = std::any::type_name::<R>();
    let (bytes, new) = trial::new_ones(of, || write_here(what, value, effort));
    let bytes = bytes?;
    if new.is_empty() || bytes.len() > MOST_TRIED {
        return Ok(bytes);
    }
    // A quick writer, see [`Effort::QUICK`], has no time for a trial.
    if effort.quick && effort.most == QUICK_BYTES {
        return Err(CodecError::NotQuick { what });
    }
    let write_again = || {
        // There is nothing to compare in a value without structs and variants.
        if !new.iter().all(Shape::is_whole) {
            drop(needs::look(|| write_here(what, value, effort)));
        }
    };
    let read = || {
        let read = needs::look(|| read_here::<R>(what, &bytes)).0?;
        // Destructors may panic: that says nothing of the bytes.
        let _ = guard(what, || drop(read));
        Ok(())
    };
    match trial::compare(write_again, read) {
        Some(Err(error)) => return Err(error),
        Some(Ok(())) => trial::went_well(&new),
        None => {}
    }
    Ok(bytes)
}

fn write_here<T: Serialize + ?Sized>(
    what: &'static str,
    value: &T,
    effort: Effort,
) -> Result<Vec<u8>, CodecError> {
    fault::forget();
    let Stack { mut limit, mib } = stack();
    if effort.quick {
        limit = limit.max(stack_pointer().saturating_sub(QUICK_STACK));
    }
    let met = Cell::new(None);
    let writer = Writer {
        bytes: Vec::with_capacity(AT_ONCE.min(effort.most)),
        most: effort.most,
        lowest: limit,
        met: &met,
    };
    let most = effort.quick.then_some(effort.named);
    let outer = NAMED.replace(most);
    let outer_most = MOST.replace(effort.most);
    let outer_measuring = MEASURING.replace(false);
    TOO_LONG.set(false);
    let written = during(Activity::Transfer, || {
        guard(what, || write_with(value, writer))
    });
    MOST.set(outer_most);
    MEASURING.set(outer_measuring);
    // What was named inside a value that is being named counts for both.
    let used = (most.unwrap_or(0)).saturating_sub(NAMED.get().unwrap_or(0));
    NAMED.set(outer.map(|outer| outer.saturating_sub(used)));
    written?.map_err(|error| match met.get() {
        Some(Limit::Bytes) => CodecError::TooLong {
            what,
            most: effort.most,
        },
        _ if effort.quick && TOO_LONG.get() => CodecError::TooLong {
            what,
            most: effort.named,
        },
        _ if effort.quick => CodecError::NotQuick { what },
        Some(Limit::Stack) => CodecError::TooDeep {
            what,
            stack_mib: mib,
        },
        None => CodecError::of::<T>(what, error),
    })
}

/// The size of a value, about, without writing it: at most so many of its parts are looked at, and of long sequences a
/// few. `None` if they cannot be written, or a shared value has no name yet.
pub fn measure<T: Serialize + ?Sized>(value: &T, steps: u32) -> Option<Size> {
    let outer = NAMED.replace(Some(0));
    let outer_measuring = MEASURING.replace(true);
    let outer_elsewhere = ELSEWHERE.replace(0);
    let sizer = Sizer::new(steps, stack().limit);
    let size = guard("measuring", || sizer.size_of(value));
    NAMED.set(outer);
    MEASURING.set(outer_measuring);
    let elsewhere = ELSEWHERE.replace(outer_elsewhere);
    let mut size = size.ok()?.ok()?;
    size.bytes = size.bytes.saturating_add(elsewhere);
    Some(size)
}

fn write_with<T: Serialize + ?Sized, F: ser_flavors::Flavor>(
    value: &T,
    output: F,
) -> postcard::Result<F::Output> {
    let mut serializer = postcard::Serializer { output };
    numbers::write(value, &mut serializer)?;
    serializer.output.finalize()
}

/// Something that the value mentions which is being read is not in this process.
pub(crate) fn is_absent() {
    trial::is_absent();
}

/// Writes a part of the value that is being written on this thread, with as little effort as that. It will be read as an `R`.
///
/// # Errors
/// As [`write_for`].
pub(crate) fn write_part<R: DeserializeOwned, T: Serialize + ?Sized>(
    what: &'static str,
    part: &T,
) -> Result<Vec<u8>, CodecError> {
    let effort = match NAMED.get() {
        Some(named) => Effort {
            most: MOST.get(),
            quick: true,
            named,
        },
        None => Effort::at_most(MOST.get()),
    };
    write_for::<R, T>(what, part, effort)
}

/// Writes a value piece by piece, so that no caller need keep all of it.
///
/// # Errors
/// If code of the user fails or panics, or the stack is used up.
pub fn stream<T: Serialize + ?Sized>(
    what: &'static str,
    value: &T,
    take: &mut dyn FnMut(&[u8]),
) -> Result<(), CodecError> {
    let Stack { limit, mib } = stack();
    let met = Cell::new(None);
    let streamer = Streamer {
        bytes: Vec::with_capacity(BLOCK),
        take,
        lowest: limit,
        met: &met,
    };
    fault::forget();
    let written = trial::apart(|| guard(what, || write_with(value, streamer)))?;
    written.map_err(|error| match met.get() {
        Some(_) => CodecError::TooDeep {
            what,
            stack_mib: mib,
        },
        None => CodecError::of::<T>(what, error),
    })
}

/// Reads a value. `what` begins the error: "reading the result".
///
/// # Errors
/// If code of the user fails or panics, the bytes are malformed, nested too deeply, or more than the value has.
pub fn read<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, CodecError> {
    trial::apart(|| read_here(what, bytes))
}

/// As [`read`], of bytes behind whose beginning others follow.
///
/// # Errors
/// As [`read`].
pub fn read_beginning<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
) -> Result<T, CodecError> {
    trial::apart(|| read_some(what, bytes)).map(|(value, _)| value)
}

fn read_here<T: DeserializeOwned>(what: &'static str, bytes: &[u8]) -> Result<T, CodecError> {
    match read_some(what, bytes)? {
        (value, 0) => Ok(value),
        (value, left) => {
            guard(what, || drop(value))?;
            let fault = Fault::of_type::<T>(Why::BytesLeft(left));
            Err(CodecError::Faulty { what, fault })
        }
    }
}

/// Reads a value; gives the number of the bytes that are left too.
fn read_some<T: DeserializeOwned>(
    what: &'static str,
    bytes: &[u8],
) -> Result<(T, usize), CodecError> {
    fault::forget();
    let Stack { limit, mib } = stack();
    let met = Cell::new(None);
    let reader = Reader {
        rest: bytes,
        lowest: limit,
        met: &met,
    };
    let read = during(Activity::Transfer, || {
        guard(what, || {
            let mut from = Deserializer::from_flavor(reader);
            let value = numbers::read(&mut from)?;
            Ok((value, from.finalize()?.len()))
        })
    })?;
    read.map_err(|error| match met.get() {
        Some(_) => CodecError::TooDeep {
            what,
            stack_mib: mib,
        },
        None => CodecError::of::<T>(what, error),
    })
}

/// Runs code of the user: a panic there is an error like another.
///
/// # Errors
/// `run` panicked.
pub fn guard<R>(what: &'static str, run: impl FnOnce() -> R) -> Result<R, CodecError> {
    catch_unwind(AssertUnwindSafe(run)).map_err(|payload| {
        let message = message(&*payload).unwrap_or("without a message").to_owned();
        drop_payload(payload);
        CodecError::Panicked { what, message }
    })
}

/// Drops the payload of a panic, which is a value of the user: its destructor may panic too.
pub fn drop_payload(payload: Box<dyn Any + Send>) {
    if let Err(next) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // The next destructor may panic as well.
        std::mem::forget(next);
    }
}

/// The text of a panic's payload, if it has any.
pub fn message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied())
}

/// Collects bytes, and looks at the stack with each.
struct Writer<'m> {
    bytes: Vec<u8>,
    most: usize,
    lowest: usize,
    met: &'m Cell<Option<Limit>>,
}

impl Writer<'_> {
    #[inline(always)]
    fn make_room(&self, more: usize) -> postcard::Result<()> {
        let met = if stack_pointer() < self.lowest {
            Limit::Stack
        } else if self.bytes.len() + more > self.most {
            Limit::Bytes
        } else {
            return Ok(());
        };
        self.met.set(Some(met));
        Err(postcard::Error::SerializeBufferFull)
    }
}

impl ser_flavors::Flavor for Writer<'_> {
    type Output = Vec<u8>;

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.make_room(1)?;
        self.bytes.push(byte);
        Ok(())
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        self.make_room(bytes.len())?;
        room::reserve_shared(&mut self.bytes, bytes.len());
        self.bytes.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.bytes)
    }
}

/// Bytes that are handed on together: a hasher is ten times as slow with single ones.
const BLOCK: usize = 16 << 10;

/// Hands bytes on in blocks, or in longer pieces, and looks at the stack with each.
struct Streamer<'s> {
    bytes: Vec<u8>,
    take: &'s mut dyn FnMut(&[u8]),
    lowest: usize,
    met: &'s Cell<Option<Limit>>,
}

impl ser_flavors::Flavor for Streamer<'_> {
    type Output = ();

    #[inline]
    fn try_push(&mut self, byte: u8) -> postcard::Result<()> {
        self.try_extend(&[byte])
    }

    #[inline]
    fn try_extend(&mut self, bytes: &[u8]) -> postcard::Result<()> {
        if stack_pointer() < self.lowest {
            self.met.set(Some(Limit::Stack));
            return Err(postcard::Error::SerializeBufferFull);
        }
        // A long piece is not copied: it may be all of a value of a gibibyte.
        if self.bytes.len() + bytes.len() > BLOCK {
            (self.take)(&self.bytes);
            self.bytes.clear();
        }
        if bytes.len() > BLOCK {
            (self.take)(bytes);
        } else {
            self.bytes.extend_from_slice(bytes);
        }
        Ok(())
    }

    fn finalize(self) -> postcard::Result<()> {
        (self.take)(&self.bytes);
        Ok(())
    }
}

/// Hands out bytes, and looks at the stack with each.
struct Reader<'de> {
    rest: &'de [u8],
    lowest: usize,
    met: &'de Cell<Option<Limit>>,
}

impl Reader<'_> {
    #[inline(always)]
    fn look(&self) -> postcard::Result<()> {
        if stack_pointer() < self.lowest {
            self.met.set(Some(Limit::Stack));
            return Err(postcard::Error::SerdeDeCustom);
        }
        Ok(())
    }
}

impl<'de> de_flavors::Flavor<'de> for Reader<'de> {
    type Remainder = &'de [u8];
    type Source = &'de [u8];

    #[inline]
    fn pop(&mut self) -> postcard::Result<u8> {
        self.look()?;
        let (&first, rest) =
            (self.rest.split_first()).ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
        self.rest = rest;
        Ok(first)
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.rest.len())
    }

    #[inline]
    fn try_take_n(&mut self, count: usize) -> postcard::Result<&'de [u8]> {
        self.look()?;
        let split = self.rest.split_at_checked(count);
        let (taken, rest) = split.ok_or(postcard::Error::DeserializeUnexpectedEnd)?;
        self.rest = rest;
        Ok(taken)
    }

    fn finalize(self) -> postcard::Result<&'de [u8]> {
        Ok(self.rest)
    }
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::*;

    const WHAT: &str = "writing the arguments";

    /// Boxes in boxes, dropped in a loop.
    #[derive(Serialize, Deserialize, Default)]
    struct Nest(Option<Box<Nest>>);

    impl Nest {
        fn of(depth: u32) -> Nest {
            (0..depth).fold(Nest::default(), |inner, _| Nest(Some(Box::new(inner))))
        }
    }

    impl Drop for Nest {
        fn drop(&mut self) {
            let mut next = self.0.take();
            while let Some(mut nest) = next {
                next = nest.0.take();
            }
        }
    }

    fn on_a_stack_of<R: Send + 'static>(size: usize, run: fn() -> R) -> R {
        let thread = std::thread::Builder::new().stack_size(size);
        let measured = move || {
            measure_stack(size);
            run()
        };
        let thread = thread.spawn(measured).expect("a thread");
        thread.join().expect("no panic")
    }

    #[test]
    fn what_is_written_is_what_postcard_writes_and_can_be_read() {
        let value = (300u64, "text".to_owned(), Some(-7i32));
        let bytes = write(WHAT, &value, Effort::ANY).expect("written");
        assert_eq!(bytes, postcard::to_stdvec(&value).expect("written"));
        assert_eq!(read(WHAT, &bytes), Ok(value));
        let cut = read::<(u64, String, Option<i32>)>(WHAT, &bytes[..bytes.len() - 1]);
        assert!(matches!(cut, Err(CodecError::Faulty { .. })), "{cut:?}");
    }

    #[test]
    fn what_is_too_deep_for_the_stack_is_an_error_that_says_what_to_do() {
        let written = on_a_stack_of(8 << 20, || write(WHAT, &Nest::of(1_000_000), Effort::ANY));
        let error = written.expect_err("a million boxes do not fit in 8 MiB");
        assert!(matches!(error, CodecError::TooDeep { stack_mib: 8, .. }));
        assert!(error.to_string().contains("SATIN_STACK"));
        let error = on_a_stack_of(8 << 20, || read::<Nest>(WHAT, &vec![1; 1_000_000]).err());
        assert!(
            matches!(error, Some(CodecError::TooDeep { .. })),
            "{error:?}"
        );
        // With a larger stack the same goes through, there and back.
        let there_and_back = on_a_stack_of(64 << 20, || {
            let bytes = write(WHAT, &Nest::of(10_000), Effort::ANY)?;
            read::<Nest>(WHAT, &bytes).map(|_| bytes.len())
        });
        assert_eq!(there_and_back, Ok(10_001));
    }

    #[test]
    fn a_panic_is_an_error_with_its_message() {
        #[derive(Debug)]
        struct Sly;
        impl Serialize for Sly {
            fn serialize<S: Serializer>(&self, _: S) -> Result<S::Ok, S::Error> {
                panic!("never");
            }
        }
        impl<'de> Deserialize<'de> for Sly {
            fn deserialize<D: Deserializer<'de>>(_: D) -> Result<Sly, D::Error> {
                panic!("not even {}", 1);
            }
        }
        let written = write(WHAT, &Sly, Effort::ANY).expect_err("it panics");
        assert_eq!(written.to_string(), "writing the arguments panicked: never");
        let error = read::<Sly>("reading the result", &[]).expect_err("it panics");
        assert_eq!(error.to_string(), "reading the result panicked: not even 1");
    }

    #[test]
    fn who_must_be_quick_gives_up_early() {
        let long = vec![0u8; QUICK_BYTES + 1];
        let (what, most) = (WHAT, QUICK_BYTES);
        let too_long = write(WHAT, &long, Effort::QUICK);
        assert_eq!(too_long, Err(CodecError::TooLong { what, most }));
        let too_deep = write(WHAT, &Nest::of(3000), Effort::QUICK);
        assert_eq!(too_deep, Err(CodecError::NotQuick { what }));
        assert!(write(WHAT, &long[..100], Effort::QUICK).is_ok());
        assert_eq!(most_named(), None);
        let long = write(WHAT, &long, Effort::up_to(64));
        assert!(matches!(long, Err(CodecError::TooLong { most: 64, .. })));
    }
}

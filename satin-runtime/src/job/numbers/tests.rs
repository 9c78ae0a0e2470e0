use std::{
    borrow::Cow,
    cell::Cell,
    collections::{BTreeMap, BTreeSet, VecDeque},
    ffi::{CString, OsString},
    fmt,
    num::{NonZeroU32, Wrapping},
};

use proptest::{collection::vec, prelude::*};
use serde::{
    de::{self, DeserializeOwned},
    ser::SerializeSeq,
};
use serde_bytes::{ByteBuf, Bytes};

use super::*;

/// A value, as [`write`] writes it.
struct Whole<'a, T>(&'a T);

impl<T: Serialize> Serialize for Whole<'_, T> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        write(self.0, to)
    }
}

pub(super) fn written<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(&Whole(value)).expect("it can be written")
}

pub(super) fn from_bytes<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> postcard::Result<T> {
    let mut from = postcard::Deserializer::from_bytes(bytes);
    let value = read(&mut from)?;
    match from.finalize()? {
        [] => Ok(value),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}

pub(super) fn there_and_back<T: Serialize + DeserializeOwned>(value: &T) -> T {
    from_bytes(&written(value)).expect("what was written can be read")
}

/// Reads a value as another type.
pub(super) fn read_as<U: DeserializeOwned>(value: &impl Serialize) -> postcard::Result<U> {
    from_bytes(&written(value))
}

#[derive(Serialize, Deserialize, PartialEq, Debug, Clone)]
enum Tree {
    Leaf,
    Numbers(Vec<u64>),
    Pair(Box<Tree>, Box<Tree>),
    Named {
        names: BTreeMap<String, Vec<i16>>,
        all: Vec<Tree>,
        maybe: Option<Vec<f64>>,
    },
}

fn tree() -> impl Strategy<Value = Tree> {
    let numbers = vec(any::<u64>(), 0..40).prop_map(Tree::Numbers);
    let leaf = prop_oneof![Just(Tree::Leaf), numbers];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let names = proptest::collection::btree_map("[a-c]{0,3}", vec(any::<i16>(), 0..40), 0..3);
        let maybe = proptest::option::of(vec(-1e9..1e9f64, 0..40));
        let named = (names, vec(inner.clone(), 0..4), maybe);
        prop_oneof![
            (inner.clone(), inner)
                .prop_map(|(left, right)| Tree::Pair(Box::new(left), Box::new(right))),
            named.prop_map(|(names, all, maybe)| Tree::Named { names, all, maybe }),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(tree in tree()) {
        prop_assert_eq!(there_and_back(&tree), tree);
    }

    #[test]
    fn whatever_comes_is_read_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let _ = from_bytes::<Tree>(&bytes);
        let _ = from_bytes::<(ByteBuf, CString)>(&bytes);
    }
}

#[test]
fn numbers_of_each_class_are_written_as_they_lie_in_memory() {
    macro_rules! each {
        ($($class:ident $number:ty),*) => {$(
            let numbers: Vec<$number> = (0..100u8).map(|i| <$number>::try_from(i).expect("small")).collect();
            let bytes = written(&numbers);
            let in_memory: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
            assert!(bytes.ends_with(&in_memory), stringify!($number));
            assert_eq!(bytes.len() - in_memory.len(), 4 + usize::from(in_memory.len() > 127));
            assert_eq!(there_and_back(&numbers), numbers);
            assert_eq!(Class::of::<$number>(), Some(Class::$class));
            assert_eq!(Class::from_index(Class::$class as u8), Some(Class::$class));
        )*};
    }
    each!(U8 u8, U16 u16, U32 u32, U64 u64, U128 u128, U64 usize);
    each!(I8 i8, I16 i16, I32 i32, I64 i64, I128 i128, I64 isize, F32 f32, F64 f64);
    assert_eq!(Class::of::<char>(), None);
}

#[test]
fn few_numbers_are_written_as_short_as_they_are() {
    assert_eq!(written(&vec![7u64; 3]), [0, 3, 7, 7, 7]);
    assert_eq!(written(&vec![7u64; FEWEST]).len(), 5 + 8 * FEWEST);
}

#[test]
fn any_sequence_of_numbers_is_a_block_and_any_can_be_read_from_it() {
    let numbers: VecDeque<u32> = (0..1000).collect();
    let bytes = written(&(1u8, &numbers, "after"));
    assert_eq!(bytes.len(), 1 + (1 + 1 + 2 + 2 + 4000) + 6);
    let (before, set, after): (u8, BTreeSet<u64>, String) = from_bytes(&bytes).expect("a set");
    assert_eq!((before, after.as_str()), (1, "after"));
    assert!(set.into_iter().eq(0..1000));
    // What does not fit is an error, as with any format of serde.
    assert!(from_bytes::<(u8, Vec<u8>, String)>(&bytes).is_err());
    assert!(from_bytes::<(u8, Vec<String>, String)>(&bytes).is_err());
}

#[test]
fn slices_and_boxes_are_blocks_too() {
    let numbers = [1.5f64; 100];
    let as_slice = written(&numbers.as_slice());
    assert_eq!(as_slice.len(), 1 + 1 + 1 + 2 + 800);
    let boxed: Box<[f64]> = from_bytes(&as_slice).expect("a box");
    assert_eq!(written(&boxed), as_slice);
    assert_eq!(*boxed, numbers);
}

#[test]
fn numbers_side_by_side_are_one_chunk_and_others_are_collected_in_chunks() {
    for length in [CHUNK / 8 - 1, CHUNK / 8, CHUNK / 8 + 1, 100_000] {
        let numbers: Vec<u64> = (0..length as u64).collect();
        let deque: VecDeque<u64> = numbers.iter().copied().collect();
        assert_eq!(there_and_back(&numbers), numbers);
        assert_eq!(there_and_back(&(deque.clone(), 7u8)), (deque.clone(), 7));
        assert_eq!(written(&numbers) == written(&deque), length <= CHUNK / 8);
    }
}

#[test]
fn a_sequence_of_another_length_than_it_says_is_an_error() {
    struct Liar(usize);
    impl Serialize for Liar {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            struct Numbers(std::ops::Range<u32>, usize);
            impl Iterator for Numbers {
                type Item = u32;
                fn next(&mut self) -> Option<u32> {
                    self.0.next()
                }
                fn size_hint(&self) -> (usize, Option<usize>) {
                    (self.1, Some(self.1))
                }
            }
            to.collect_seq(Numbers(0..100, self.0))
        }
    }
    assert!(postcard::to_stdvec(&Whole(&Liar(100))).is_ok());
    assert!(postcard::to_stdvec(&Whole(&Liar(99))).is_err());
    assert!(postcard::to_stdvec(&Whole(&Liar(101))).is_err());
}

/// Writes bytes one by one, as a `Serialize` by hand may do.
struct OneByOne(Vec<u8>);

impl Serialize for OneByOne {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let mut sequence = to.serialize_seq(Some(self.0.len()))?;
        for byte in &self.0 {
            sequence.serialize_element(byte)?;
        }
        sequence.end()
    }
}

#[derive(Serialize, Deserialize, PartialEq, Debug)]
struct Borrowing<'a>(#[serde(borrow)] Cow<'a, [u8]>, &'a [u8]);

#[test]
fn byte_strings_and_sequences_of_bytes_are_read_as_each_other() {
    for length in [0, 1, FEWEST - 1, FEWEST, 200, CHUNK, CHUNK + 1, 3 * CHUNK] {
        let bytes: Vec<u8> = (0..length).map(|i| i as u8 | 1).collect();
        let same = |written: &[u8]| {
            assert_eq!(from_bytes::<Vec<u8>>(written).as_ref(), Ok(&bytes));
            let as_bytes: ByteBuf = from_bytes(written).expect("bytes");
            assert_eq!(*as_bytes, bytes);
            let text: CString = from_bytes(written).expect("no byte is 0");
            assert_eq!(text.as_bytes(), bytes);
        };
        let string = written(&Bytes::new(&bytes));
        same(&string);
        assert_eq!(written(&bytes), string);
        let text = CString::new(bytes.clone()).expect("no byte is 0");
        assert_eq!(written(&text), string);
        same(&written(&OneByOne(bytes.clone())));
        same(&written(&VecDeque::from(bytes.clone())));
        // As part of others, as well.
        let parts = (bytes.clone(), Some(bytes.clone()), vec![bytes.clone()]);
        assert_eq!(there_and_back(&parts), parts);
        let owned = OsString::from("x".repeat(length));
        assert_eq!(there_and_back(&owned), owned);
        // What lies in the bytes in one piece can be borrowed.
        let both = written(&Borrowing(Cow::Borrowed(&bytes), &bytes));
        let borrowed: Borrowing<'_> = from_bytes(&both).expect("bytes");
        assert!(matches!(borrowed.0, Cow::Borrowed(_)));
        assert_eq!(borrowed, Borrowing(Cow::Borrowed(&bytes), &bytes));
    }
    assert!(read_as::<ByteBuf>(&vec![1u16; 100]).is_err());
    assert!(read_as::<ByteBuf>(&vec![1i8; 100]).is_err());
}

#[test]
fn numbers_are_read_into_whatever_is_made_of_one() {
    #[derive(Deserialize, PartialEq, Debug)]
    struct Meters(f64);
    #[derive(Deserialize, PartialEq, Debug)]
    #[serde(transparent)]
    struct Track {
        length: Meters,
    }
    let numbers = vec![2.5f64; 100];
    let read: Vec<Track> = read_as(&numbers).expect("each is made of a number");
    assert!(read.len() == 100 && read.iter().all(|track| track.length == Meters(2.5)));
    let numbers = vec![7u32; 100];
    assert_eq!(
        read_as::<Vec<NonZeroU32>>(&numbers).map(|all| all.len()),
        Ok(100)
    );
    assert_eq!(
        read_as::<Vec<Wrapping<u32>>>(&numbers).map(|all| all.len()),
        Ok(100)
    );
    assert_eq!(read_as::<Vec<i128>>(&numbers), Ok(vec![7; 100]));
    assert_eq!(read_as::<Vec<i16>>(&numbers), Ok(vec![7; 100]), "each fits");
    // What is more than a number is not made of one.
    assert!(read_as::<Vec<Option<u32>>>(&numbers).is_err());
    assert!(read_as::<Vec<(u32,)>>(&numbers).is_err());
    assert!(read_as::<Vec<bool>>(&vec![1u8; 100]).is_err());
    assert!(read_as::<Vec<NonZeroU32>>(&vec![0u32; 100]).is_err());
}

#[test]
fn what_is_no_number_is_written_as_before() {
    #[derive(Serialize)]
    struct Complex {
        re: f64,
        im: f64,
    }
    fn items<T: Serialize>(all: &[T]) {
        let as_before = postcard::to_stdvec(&all).expect("it can be written");
        assert_eq!(written(&all), [&[ITEMS as u8], &as_before[..]].concat());
    }
    items(&[true; 20]);
    items(&['x'; 20]);
    items(&[Some(1u8); 20]);
    items(&[Wrapping(1u8); 20]);
    items(&[NonZeroU32::MIN; 20]);
    items(&[&&1u8; 20]);
    items(&[(1u8, 2u8); 20]);
    items(&[[1.0f32; 20]; 20]);
    items(&[const { Complex { re: 1.0, im: 2.0 } }; 20]);
    assert_eq!(written(&[7u8; 20]), [7; 20], "an array has no length");
}

#[test]
fn a_block_that_is_none_is_refused() {
    let bytes = written(&vec![1u64; 20]);
    assert_eq!(bytes[..5], [BLOCK as u8, Class::U64 as u8, 20, 0xa0, 0x01]);
    let refused = |at: usize, byte: u8| {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        assert!(
            from_bytes::<Vec<u64>>(&bytes).is_err(),
            "byte {at} = {byte}"
        );
    };
    refused(0, 2); // a form that there is not
    refused(1, 12); // of what class?
    refused(2, 19); // fewer numbers than bytes
    refused(2, 21); // more
    refused(3, 0xa1); // a piece of a number
    refused(3, 0xa8); // more bytes than there are
}

#[test]
fn a_changed_slice_goes_from_the_bytes_to_its_place() {
    let numbers: Vec<u64> = (0..20_000).collect();
    let deque: VecDeque<u64> = numbers.iter().copied().collect();
    let returned = |bytes: &bytes::Bytes| {
        let read = || {
            let mut from = postcard::Deserializer::from_bytes(bytes);
            read_returned::<u64, _>(unpacking::Unpacking(&mut from)).expect("it can be read")
        };
        super::super::payload::reading(bytes, read)
    };
    // In one piece, in several, other numbers, and too few for a block.
    let narrow: Vec<u32> = (0..20_000).collect();
    for (bytes, is_block, count) in [
        (written(&numbers), true, 20_000),
        (written(&deque), true, 20_000),
        (written(&narrow), false, 20_000),
        (written(&&numbers[..9]), false, 9),
    ] {
        let mut places = vec![7u64; count];
        let bytes = bytes.into();
        let back = returned(&bytes);
        assert_eq!(matches!(back, Returned::Block(_)), is_block);
        back.copy_to(&mut places);
        assert_eq!(places, numbers[..count]);
    }
    let bytes = written(&numbers).into();
    let Returned::Block(block) = returned(&bytes) else {
        panic!("a block");
    };
    assert!(
        bytes.as_ptr_range().contains(&block.as_ptr()),
        "not copied yet"
    );
    let too_few = || returned(&bytes).copy_to(&mut [0; 19_999]);
    assert!(std::panic::catch_unwind(too_few).is_err());
}

#[test]
fn a_sequence_of_values_of_no_size_does_not_take_memory() {
    let many = vec![(); 1_000_000];
    assert_eq!(written(&many).len(), 4);
    assert_eq!(there_and_back(&many).len(), 1_000_000);
}

#[test]
fn a_length_that_is_a_lie_takes_neither_memory_nor_time() {
    /// What a visitor is told to expect.
    struct Expected(Option<usize>);
    impl<'de> Deserialize<'de> for Expected {
        fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Expected, D::Error> {
            struct Asking;
            impl<'de> de::Visitor<'de> for Asking {
                type Value = Expected;
                fn expecting(&self, text: &mut fmt::Formatter<'_>) -> fmt::Result {
                    text.write_str("a sequence")
                }
                fn visit_seq<A: de::SeqAccess<'de>>(self, all: A) -> Result<Expected, A::Error> {
                    Ok(Expected(all.size_hint()))
                }
            }
            from.deserialize_seq(Asking)
        }
    }
    let expected = |bytes: &[u8]| {
        let mut from = postcard::Deserializer::from_bytes(bytes);
        read::<Expected, _>(&mut from).map(|Expected(hint)| hint)
    };
    let head = |form: u32, class: Option<Class>, length: usize| {
        let class = class.map(|class| class as u8);
        let head = [postcard::to_stdvec(&form), postcard::to_stdvec(&length)].map(Result::unwrap);
        [&head[0], class.as_slice(), &head[1]].concat()
    };
    let many = codec::LARGEST;
    assert_eq!(expected(&head(ITEMS, None, 30)), Ok(Some(30)));
    assert!(expected(&head(ITEMS, None, many)).expect("it may be") <= Some(10_000));
    assert!(expected(&head(ITEMS, None, 1 << 60)).is_err());
    // The first chunk has two numbers.
    let begun = |length| [head(BLOCK, Some(Class::U16), length), vec![4, 0, 0, 0, 0]].concat();
    assert_eq!(expected(&begun(2)), Ok(Some(2)));
    assert!(expected(&begun(usize::MAX)).expect("it may be") <= Some(10_000));
    assert!(from_bytes::<Vec<u16>>(&begun(usize::MAX)).is_err());
    assert!(from_bytes::<ByteBuf>(&head(BLOCK, Some(Class::U8), usize::MAX)).is_err());
    assert!(from_bytes::<Vec<()>>(&head(ITEMS, None, 1 << 60)).is_err());
    let entries = postcard::to_stdvec(&(1usize << 60)).expect("a number");
    assert!(from_bytes::<BTreeMap<(), ()>>(&entries).is_err());
}

#[test]
fn what_can_be_written_can_be_read_however_long_it_is() {
    /// A sequence of so many elements, and whether it could begin.
    struct Begun(usize, Cell<bool>);
    impl Serialize for Begun {
        fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            let sequence = to.serialize_seq(Some(self.0))?;
            self.1.set(true);
            sequence.end()
        }
    }
    let begins = |length| {
        let sequence = Begun(length, Cell::new(false));
        let _ = postcard::to_stdvec(&Whole(&sequence));
        sequence.1.get()
    };
    assert!(begins(codec::LARGEST));
    assert!(!begins(codec::LARGEST + 1));
}

//! Plain data of the user: what is written in one piece, and what can be read from it.
#![cfg(target_endian = "little")]

use std::{
    borrow::Cow,
    cell::Cell,
    collections::{BTreeMap, VecDeque},
    num::NonZeroU32,
    sync::Arc,
};

use bytemuck::{Pod, Zeroable};
use proptest::{collection::vec, prelude::*};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{
    PLAIN,
    plain::{NotPlain as _, Probe, names_and_sizes},
    tests::{from_bytes, read_as, there_and_back, written},
};
use crate::job::program_hash;

#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, Pod, Zeroable)]
#[repr(C)]
struct Complex {
    re: f64,
    im: f64,
}

/// Fields of several sizes, one that serde leaves out, and an alignment that bytes do not have.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, Pod, Zeroable)]
#[repr(C)]
struct Particle {
    mass: f64,
    place: [f32; 3],
    kind: u16,
    spin: i8,
    #[serde(skip)]
    color: u8,
}

/// As large as a `Complex`.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, Pod, Zeroable)]
#[repr(C)]
struct Pair([u64; 2]);

/// Plain data that is named nowhere.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize, Pod, Zeroable)]
#[repr(C)]
struct Unnamed([u64; 2]);

type Particles = Vec<Particle>;

crate::look_for_plain!(Vec<Complex>, Complex, Particles, [f32; 3], u64, (), String);
crate::look_for_plain!(Complex);
crate::plain!(Pair, Option<NonZeroU32>);

fn particles(bytes: &[u8]) -> Particles {
    let mut all: Particles = Vec::new();
    super::slices::append(&mut all, bytes);
    all
}

/// The bytes that elements lie in.
fn in_memory<T: Pod>(all: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(all).to_vec()
}

proptest! {
    #[test]
    fn what_is_written_is_read_again(bytes in vec(any::<u8>(), 0..2000), before in any::<u8>()) {
        let all = particles(&bytes);
        let value = (vec![before; usize::from(before % 8)], all, vec![before]);
        let (first, read, last) = there_and_back(&value);
        prop_assert_eq!((first, last), (value.0, value.2));
        // Bit for bit, also where a float is no number.
        prop_assert_eq!(in_memory(&read), in_memory(&value.1));
    }

    #[test]
    fn whatever_comes_is_read_or_refused(bytes in vec(any::<u8>(), 0..300), size in 0..40u8) {
        let _ = from_bytes::<Particles>(&bytes);
        let head = [&[PLAIN as u8, size][..], &bytes].concat();
        let _ = from_bytes::<Particles>(&head);
        let _ = from_bytes::<VecDeque<Complex>>(&head);
        let _ = from_bytes::<(Vec<u8>, String)>(&head);
    }

    #[test]
    fn a_length_that_is_a_lie_is_an_error(elements in 1..40usize, said in any::<u32>()) {
        let bytes = written(&vec![Complex { re: 1.5, im: -2.5 }; elements]);
        let tail = &bytes[bytes.len() - 16 * elements..];
        let said = said as usize;
        let head = postcard::to_stdvec(&(PLAIN as u8, 16u8, said)).expect("a head");
        let read = from_bytes::<Vec<Complex>>(&[&head[..], tail].concat());
        prop_assert_eq!(read.is_ok(), said == tail.len());
    }
}

#[test]
fn plain_data_is_written_as_it_lies_in_memory_wherever_it_stands() {
    let numbers: Vec<Complex> = (0..100)
        .map(|i| Complex {
            re: f64::from(i),
            im: 0.5,
        })
        .collect();
    let bytes = written(&numbers);
    assert_eq!(bytes[..4], [PLAIN as u8, 16, 0xc0, 0x0c]);
    assert_eq!(bytes[4..], in_memory(&numbers));
    assert_eq!(written(&&numbers[..]), bytes);
    assert_eq!(written(&numbers.clone().into_boxed_slice()), bytes);
    assert_eq!(written(&Cow::Borrowed(&numbers[..])), bytes);
    assert_eq!(
        read_as::<Box<[Complex]>>(&numbers).as_deref(),
        Ok(&numbers[..])
    );
    assert_eq!(
        read_as::<Arc<[Complex]>>(&numbers).as_deref(),
        Ok(&numbers[..])
    );
    #[derive(Serialize, Deserialize, PartialEq, Debug)]
    enum Nested {
        Numbers(Vec<Complex>),
        More {
            by_name: BTreeMap<String, Box<[Complex]>>,
            triangles: Vec<[f32; 3]>,
        },
        Both(Option<Vec<Complex>>, Box<Nested>),
    }
    let more = Nested::More {
        by_name: [("a".to_owned(), numbers.clone().into())].into(),
        triangles: vec![[1.0, 2.0, 3.0]; 200],
    };
    let nested = Nested::Both(Some(numbers.clone()), Box::new(more));
    assert!(written(&nested).len() < 2 * 1604 + 2404 + 12);
    assert_eq!(there_and_back(&nested), nested);
    let numbers = Nested::Numbers(numbers);
    assert_eq!(there_and_back(&numbers), numbers);
}

#[test]
fn what_serde_leaves_out_travels_as_well() {
    let particle = Particle {
        mass: 1.0,
        place: [1.0, 2.0, 3.0],
        kind: 7,
        spin: -1,
        color: 9,
    };
    for length in [1, 2, 100] {
        let all = vec![particle; length];
        assert_eq!(there_and_back(&all), all);
    }
    // Alone it is a value like any other.
    assert_eq!(there_and_back(&particle).color, 0);
}

#[test]
fn what_is_named_nowhere_is_written_item_by_item() {
    let pair = |n| Pair([n, 1]);
    assert_eq!(written(&vec![pair(1); 7]).len(), 3 + 7 * 16);
    assert_eq!(written(&Vec::<Pair>::new()), [0, 0]);
    for length in 0..20 {
        let pairs: Vec<Pair> = (0..length).map(pair).collect();
        assert_eq!(there_and_back(&pairs), pairs);
    }
    let unnamed = vec![Unnamed([1, 1]); 100];
    assert_eq!(written(&unnamed).len(), 2 + 100 * 2);
    assert_eq!(there_and_back(&unnamed), unnamed);
}

#[test]
fn whatever_takes_such_elements_can_be_read() {
    let pairs: Vec<Pair> = (0..1000).map(|n| Pair([n, n])).collect();
    let deque: VecDeque<Pair> = read_as(&pairs).expect("a deque");
    assert!(deque.iter().eq(&pairs));
    assert_eq!(read_as::<Vec<Pair>>(&deque), Ok(pairs.clone()));
    assert_eq!(there_and_back(&deque), deque);
    /// Sees each element, as the visitor of a `Deserialize` of the user may.
    struct Count(usize);
    impl<'de> Deserialize<'de> for Count {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Count, D::Error> {
            struct Counting;
            impl<'de> serde::de::Visitor<'de> for Counting {
                // Of the type that others make at once.
                type Value = Vec<Pair>;
                fn expecting(&self, text: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                    text.write_str("pairs")
                }
                fn visit_seq<A: serde::de::SeqAccess<'de>>(
                    self,
                    mut all: A,
                ) -> Result<Vec<Pair>, A::Error> {
                    assert_eq!(all.size_hint(), Some(1000));
                    let mut odd = Vec::new();
                    while let Some(pair) = all.next_element::<Pair>()? {
                        odd.extend((pair.0[0] % 2 == 1).then_some(pair));
                    }
                    Ok(odd)
                }
            }
            Ok(Count(from.deserialize_seq(Counting)?.len()))
        }
    }
    let count: Count = read_as(&pairs).expect("pairs");
    assert_eq!(count.0, 500, "the user's visitor decides");
}

#[test]
fn plain_data_is_read_as_what_it_was_or_not_at_all() {
    fn refused<T: DeserializeOwned>(value: &impl Serialize) {
        let read = read_as::<T>(value).map(drop);
        assert!(read.is_err(), "{}", std::any::type_name::<T>());
    }
    let numbers = vec![Complex { re: 1.0, im: 2.0 }; 100];
    refused::<Vec<Particle>>(&numbers);
    refused::<Vec<Unnamed>>(&numbers);
    refused::<Vec<f64>>(&numbers);
    refused::<Vec<u8>>(&numbers);
    refused::<Vec<(f64, f64)>>(&numbers);
    refused::<VecDeque<Unnamed>>(&numbers);
    refused::<String>(&numbers);
    refused::<serde_bytes::ByteBuf>(&numbers);
    refused::<Vec<Complex>>(&vec![1.5f64; 200]);
}

#[test]
fn a_piece_that_is_none_is_refused() {
    let bytes = written(&vec![Complex { re: 1.0, im: 2.0 }; 10]);
    assert_eq!(bytes[..4], [PLAIN as u8, 16, 0xa0, 0x01]);
    for (at, byte) in [
        (0, 3),
        (1, 0),
        (1, 15),
        (1, 8),
        (2, 0xa1),
        (2, 0x90),
        (2, 0xb0),
    ] {
        let mut bytes = bytes.clone();
        bytes[at] = byte;
        let read = from_bytes::<Vec<Complex>>(&bytes);
        assert!(read.is_err(), "byte {at} = {byte}");
    }
    assert!(from_bytes::<Vec<Complex>>(&[PLAIN as u8, 16, 0]).is_err());
    assert!(from_bytes::<Vec<Complex>>(&[PLAIN as u8]).is_err());
}

#[test]
fn the_compiler_knows_what_is_plain_data() {
    assert!(Probe::<Complex>::ITSELF.is_some());
    assert!(Probe::<[f64; 3]>::ITSELF.is_some());
    assert!(Probe::<Particles>::IN_VECTOR.is_some());
    assert!(Probe::<Box<[Pair]>>::IN_BOX.is_some());
    assert!(Probe::<String>::ITSELF.is_none());
    assert!(Probe::<[Complex]>::ITSELF.is_none());
    assert!(Probe::<Vec<String>>::IN_VECTOR.is_none());
    assert!(
        Probe::<bool>::ITSELF.is_none(),
        "not all bytes are a `bool`"
    );
    let names = names_and_sizes();
    let has = |name: &str, size| {
        names
            .iter()
            .any(|known| known.0.ends_with(name) && known.1 == size)
    };
    assert!(
        has("Complex", 16) && has("Particle", 24) && has("[f32; 3]", 12),
        "{names:?}"
    );
    assert!(
        !has("u64", 8) && !has("()", 0) && !has("Unnamed", 16),
        "{names:?}"
    );
    assert_eq!(
        names
            .iter()
            .filter(|known| known.0.ends_with("plain_tests::Complex"))
            .count(),
        1
    );
    assert_eq!(program_hash(), program_hash());
}

#[test]
fn vectors_of_numbers_are_read_in_one_piece() {
    thread_local!(static ONE_BY_ONE: Cell<usize> = const { Cell::new(0) });
    /// A number that counts how often it is read.
    #[derive(PartialEq, Debug)]
    struct Counted(u64);
    impl<'de> Deserialize<'de> for Counted {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Counted, D::Error> {
            ONE_BY_ONE.set(ONE_BY_ONE.get() + 1);
            u64::deserialize(from).map(Counted)
        }
    }
    let numbers: Vec<u64> = (0..100_000).collect();
    let deque: VecDeque<u64> = numbers.iter().copied().collect();
    for bytes in [written(&numbers), written(&deque)] {
        assert_eq!(from_bytes::<Vec<u64>>(&bytes).as_ref(), Ok(&numbers));
        assert_eq!(
            from_bytes::<Option<Box<[u64]>>>(&[&[1], &bytes[..]].concat()),
            Ok(Some(numbers.clone().into()))
        );
        assert_eq!(
            from_bytes::<Vec<usize>>(&bytes).map(|all| all.len()),
            Ok(100_000)
        );
        assert_eq!(
            from_bytes::<Vec<u128>>(&bytes).map(|all| all[99_999]),
            Ok(99_999)
        );
        assert!(from_bytes::<Vec<u8>>(&bytes).is_err());
        assert!(from_bytes::<Vec<Counted>>(&bytes).is_ok());
    }
    assert_eq!(ONE_BY_ONE.get(), 200_000);
    assert_eq!(
        super::vectors::visitor_of::<u64>(),
        super::vectors::visitor_of::<u64>()
    );
    assert_ne!(
        super::vectors::visitor_of::<u64>(),
        super::vectors::visitor_of::<i64>()
    );
    assert!(super::vectors::visitor_of::<u64>().is_some());
}

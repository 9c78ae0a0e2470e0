//! Values that only improve: join-semilattices, and those that come with Satin.

use std::{
    any::{Any, TypeId},
    collections::{BTreeSet, HashSet},
    hash::{BuildHasher, Hash},
    marker::PhantomData,
    ops::BitOr,
};

use serde::{Serialize, de::DeserializeOwned};

/// A value that can be kept in a bound or offered to a bound.
pub trait Portable: Clone + Serialize + DeserializeOwned + Send + Sync + 'static {}

impl<T: Clone + Serialize + DeserializeOwned + Send + Sync + 'static> Portable for T {}

/// How the values of a bound are combined: a join-semilattice.
///
/// Offers reach other nodes in any order, and more than once, so `join` must not care: it must be associative and
/// commutative, and joining a value once more must change nothing. (Where only a part of the value is compared, as with
/// [`MinWith`], that holds for this part.)
///
/// A lattice is a type without values of its own, and tells about those of another:
///
/// ```
/// use satin_runtime::data::Lattice;
///
/// /// The longest word so far.
/// struct Longest;
///
/// impl Lattice for Longest {
///     type Value = String;
///     type Rank = String;
///
///     fn join(best: &mut String, other: String) -> bool {
///         // Of words of the same length the first of the alphabet, so that the order of offers does not matter.
///         let is_better = (other.len(), &*best) > (best.len(), &other);
///         if is_better {
///             *best = other;
///         }
///         is_better
///     }
///
///     fn prunes(best: &String, word: &String) -> bool {
///         word.len() < best.len()
///     }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no lattice",
    label = "a bound is a `Min<..>`, `Max<..>`, `MinWith<.., ..>`, `MaxWith<.., ..>`, `Or`, `Union<..>`, or a `Lattice` of your own"
)]
pub trait Lattice: 'static {
    /// The values that are offered and got.
    type Value: Portable;
    /// The measure for pruning: the best that a job could find, as far as can be told beforehand.
    type Rank: ?Sized;

    /// Makes `best` the join of both: the worst value that is no worse than either. True if that changed it.
    fn join(best: &mut Self::Value, other: Self::Value) -> bool;

    /// True if a job is superfluous that finds nothing better than `rank`, once a job has found `best`.
    ///
    /// An offer survives the job that made it. If that job is lost with its node it is done again, in the light of its own
    /// first offer. So a lattice whose values are not the answer itself may prune only what is *strictly* worse.
    fn prunes(best: &Self::Value, rank: &Self::Rank) -> bool;

    /// False for what is no value: it is not taken (`NaN`).
    fn is_value(value: &Self::Value) -> bool {
        let _ = value;
        true
    }

    /// How good a value is, in a number: the less, the better. For lattices in which of any two values one is at least as
    /// good as the other, this makes [`prunes`](Lattice::prunes) an atomic load and a comparison. It is exact or `None`:
    /// `join` changes a value if, and only if, the other measures less.
    fn measure(value: &Self::Value) -> Option<u64> {
        let _ = value;
        None
    }

    /// `rank` is pruned by the values that measure less than this. It is exact or `None`.
    fn threshold(rank: &Self::Rank) -> Option<u64> {
        let _ = rank;
        None
    }

    /// The value of this measure, if there is only one.
    fn of_measure(measure: u64) -> Option<Self::Value> {
        let _ = measure;
        None
    }

    /// Tells where code of the user runs when values come as bytes.
    #[doc(hidden)]
    fn manners() -> Manners {
        Manners::OfTheUser
    }

    /// The measure of a value that comes as bytes, unless its [`Manners`] are the user's.
    #[doc(hidden)]
    fn measure_of_bytes(bytes: &[u8]) -> Option<u64> {
        let _ = bytes;
        None
    }
}

/// The sort of code that must run to read and to join values that come as bytes.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Manners {
    /// Numbers alone are read and compared.
    Plain,
    /// A number at the beginning is compared; code of the user handles the rest.
    PlainCost,
    /// Code of the user reads and joins them.
    OfTheUser,
}

/// The least value: a cost to be kept low. Prunes what costs strictly more.
///
/// Equal costs still have to be looked at: the node that has found the value may be lost, and with it the solution. See
/// [`MinWith`].
///
/// `K` is any number, or anything else that has an order; values that do not even equal themselves (`NaN`) are neither taken
/// nor pruned.
pub struct Min<K>(PhantomData<K>);

/// The greatest value: a profit to be kept high. Prunes what is strictly less; otherwise as [`Min`].
pub struct Max<K>(PhantomData<K>);

/// The least cost, and a solution with that cost. Prunes also equal costs.
///
/// Pruning equals is right because the solution is safe once it has been offered: the program takes the solution that it
/// [gets](super::Bound::get) in the end, not the result that comes back through the calls, which a job that is done again
/// in the light of its own first offer would not find. Of several solutions with the same cost a single one is kept.
pub struct MinWith<K, W>(PhantomData<(K, W)>);

/// The greatest profit, and a solution that has it. Prunes also what has the same; otherwise as [`MinWith`].
pub struct MaxWith<K, W>(PhantomData<(K, W)>);

macro_rules! extremes {
    ($one:ident, $with:ident, $better:tt, $turned:expr) => {
        impl<K: PartialOrd + Portable> Lattice for $one<K> {
            type Value = K;
            type Rank = K;

            fn join(best: &mut K, other: K) -> bool {
                let is_better = other $better *best;
                if is_better {
                    *best = other;
                }
                is_better
            }
            #[inline]
            fn prunes(best: &K, rank: &K) -> bool {
                *best $better *rank
            }
            /// `NaN` does not even equal itself.
            fn is_value(value: &K) -> bool {
                value == value
            }
            #[inline]
            fn measure(value: &K) -> Option<u64> {
                to_word(value).map($turned)
            }
            #[inline]
            fn threshold(rank: &K) -> Option<u64> {
                to_word(rank).map($turned)
            }
            #[inline]
            fn of_measure(measure: u64) -> Option<K> {
                of_word($turned(measure))
            }
            fn manners() -> Manners {
                if is_word::<K>() { Manners::Plain } else { Manners::OfTheUser }
            }
            fn measure_of_bytes(bytes: &[u8]) -> Option<u64> {
                measure_of_number::<K>(bytes).map($turned)
            }
        }

        impl<K: PartialOrd + Portable, W: Portable> Lattice for $with<K, W> {
            type Value = (K, W);
            type Rank = K;

            fn join(best: &mut (K, W), other: (K, W)) -> bool {
                let is_better = other.0 $better best.0;
                if is_better {
                    *best = other;
                }
                is_better
            }
            #[inline]
            fn prunes((best, _): &(K, W), rank: &K) -> bool {
                *best $better *rank || best == rank
            }
            /// `NaN` does not even equal itself.
            fn is_value((cost, _): &(K, W)) -> bool {
                cost == cost
            }
            #[inline]
            fn measure((cost, _): &(K, W)) -> Option<u64> {
                to_word(cost).map($turned)
            }
            #[inline]
            fn threshold(rank: &K) -> Option<u64> {
                to_word(rank).map($turned)?.checked_add(1)
            }
            fn manners() -> Manners {
                if is_word::<K>() { Manners::PlainCost } else { Manners::OfTheUser }
            }
            fn measure_of_bytes(bytes: &[u8]) -> Option<u64> {
                measure_of_number::<K>(bytes).map($turned)
            }
        }
    };
}

extremes!(Min, MinWith, <, |word: u64| word);
extremes!(Max, MaxWith, >, |word: u64| !word);

/// True once any job says so; with numbers, the bits that any job has set. Prunes ranks with only a part of those bits: with
/// `bool`, once it is true, jobs that can only say `false`.
pub struct Or<B = bool>(PhantomData<B>);

impl<B: BitOr<Output = B> + PartialEq + Portable> Lattice for Or<B> {
    type Value = B;
    type Rank = B;

    fn join(best: &mut B, other: B) -> bool {
        let joined = best.clone() | other;
        let is_better = joined != *best;
        *best = joined;
        is_better
    }
    fn prunes(best: &B, rank: &B) -> bool {
        best != rank && best.clone() | rank.clone() == *best
    }
    #[inline]
    fn measure(value: &B) -> Option<u64> {
        (value as &dyn Any)
            .downcast_ref()
            .map(|is_true: &bool| u64::from(!is_true))
    }
    #[inline]
    fn threshold(rank: &B) -> Option<u64> {
        Self::measure(rank)
    }
    #[inline]
    fn of_measure(measure: u64) -> Option<B> {
        (&(measure == 0) as &dyn Any).downcast_ref().cloned()
    }
    fn manners() -> Manners {
        if is_word::<B>() || TypeId::of::<B>() == TypeId::of::<bool>() {
            Manners::Plain
        } else {
            Manners::OfTheUser
        }
    }
}

/// All elements of all sets that were offered. Prunes a set that lacks some of them and has no others.
///
/// `S` is a `BTreeSet`, a `HashSet`, or another [`Set`].
pub struct Union<S>(PhantomData<S>);

impl<S: Set> Lattice for Union<S> {
    type Value = S;
    type Rank = S;

    fn join(best: &mut S, other: S) -> bool {
        let before = best.len();
        best.add(other);
        best.len() != before
    }
    fn prunes(best: &S, rank: &S) -> bool {
        rank.len() < best.len() && rank.is_within(best)
    }
}

/// A set of values, for [`Union`].
pub trait Set: Portable {
    /// Number of elements in the set.
    fn len(&self) -> usize;
    /// True if the set has no elements.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// Are all its elements in the other too?
    fn is_within(&self, other: &Self) -> bool;
    /// Adds the elements of another.
    fn add(&mut self, other: Self);
}

impl<T: Ord + Portable> Set for BTreeSet<T> {
    fn len(&self) -> usize {
        self.len()
    }
    fn is_within(&self, other: &Self) -> bool {
        self.is_subset(other)
    }
    fn add(&mut self, mut other: Self) {
        self.append(&mut other);
    }
}

impl<T, H> Set for HashSet<T, H>
where
    T: Eq + Hash + Portable,
    H: BuildHasher + Default + Clone + Send + Sync + 'static,
{
    fn len(&self) -> usize {
        self.len()
    }
    fn is_within(&self, other: &Self) -> bool {
        self.is_subset(other)
    }
    fn add(&mut self, other: Self) {
        self.extend(other);
    }
}

/// Reads a number, if `K` is one, from the beginning of a value: in a pair the cost comes first.
fn measure_of_number<K: Portable>(bytes: &[u8]) -> Option<u64> {
    if !is_word::<K>() {
        return None;
    }
    let (number, _) = postcard::take_from_bytes::<K>(bytes).ok()?;
    to_word(&number)
}

const SIGN: u64 = 1 << 63;

fn float_to_word(float: f64) -> Option<u64> {
    // Minus zero equals zero.
    let bits = (float + 0.0).to_bits();
    let word = if bits & SIGN == 0 { bits | SIGN } else { !bits };
    (!float.is_nan()).then_some(word)
}

fn word_to_float(word: u64) -> f64 {
    f64::from_bits(if word & SIGN == 0 { !word } else { word ^ SIGN })
}

macro_rules! words {
    ($($number:ty: $to:expr, $of:expr;)+) => {
        /// Maps the numbers that fit to 64 bits that have the same order. The compiler knows `K`, so nothing of the
        /// search is left.
        #[inline]
        fn to_word<K: 'static>(key: &K) -> Option<u64> {
            let key = key as &dyn Any;
            $(if let Some(key) = key.downcast_ref::<$number>() {
                return $to(*key);
            })+
            None
        }

        /// Is `K` one of them?
        fn is_word<K: 'static>() -> bool {
            $(TypeId::of::<K>() == TypeId::of::<$number>())||+
        }

        /// The inverse of `to_word`.
        #[inline]
        fn of_word<K: Clone + 'static>(word: u64) -> Option<K> {
            $(if let Some(key) = (&$of(word) as &dyn Any).downcast_ref::<K>() {
                return Some(key.clone());
            })+
            None
        }
    };
}

words! {
    u8: |key| Some(u64::from(key)), |word: u64| word as u8;
    u16: |key| Some(u64::from(key)), |word: u64| word as u16;
    u32: |key| Some(u64::from(key)), |word: u64| word as u32;
    u64: Some, |word: u64| word;
    usize: |key| Some(key as u64), |word: u64| word as usize;
    i8: |key| Some(i64::from(key) as u64 ^ SIGN), |word: u64| (word ^ SIGN) as i8;
    i16: |key| Some(i64::from(key) as u64 ^ SIGN), |word: u64| (word ^ SIGN) as i16;
    i32: |key| Some(i64::from(key) as u64 ^ SIGN), |word: u64| (word ^ SIGN) as i32;
    i64: |key| Some(key as u64 ^ SIGN), |word: u64| (word ^ SIGN) as i64;
    isize: |key| Some(key as u64 ^ SIGN), |word: u64| (word ^ SIGN) as isize;
    f32: |key| float_to_word(f64::from(key)), |word: u64| word_to_float(word) as f32;
    f64: float_to_word, word_to_float;
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;

    use proptest::{collection, prelude::*};

    use super::*;

    /// The laws, for what `part` shows of the values.
    fn laws<L: Lattice, P: PartialEq + Debug>(
        [a, b, c]: [L::Value; 3],
        part: impl Fn(&L::Value) -> P,
    ) {
        let join = |mut one: L::Value, other: L::Value| {
            let before = part(&one);
            let changed = L::join(&mut one, other);
            assert_eq!(changed, part(&one) != before);
            one
        };
        let same = |one: L::Value, other: L::Value| assert_eq!(part(&one), part(&other));
        same(join(a.clone(), a.clone()), a.clone());
        same(join(a.clone(), b.clone()), join(b.clone(), a.clone()));
        let first = join(join(a.clone(), b.clone()), c.clone());
        same(first, join(a.clone(), join(b, c)));
    }

    /// Pruning by numbers is the same as pruning, and nothing is pruned that would improve the value.
    fn prunes<L: Lattice<Value: PartialEq + Debug>>(
        best: L::Value,
        other: L::Value,
        rank: impl Fn(&L::Value) -> &L::Rank,
    ) {
        let pruned = L::prunes(&best, rank(&other));
        if let (Some(measure), Some(threshold)) = (L::measure(&best), L::threshold(rank(&other))) {
            assert_eq!(pruned, measure < threshold);
        }
        if let Some(value) = L::measure(&best).and_then(L::of_measure) {
            assert_eq!(value, best);
        }
        let better = match (L::measure(&other), L::measure(&best)) {
            (Some(new), Some(old)) => Some(new < old),
            _ => None,
        };
        let mut joined = best;
        let changed = L::join(&mut joined, other);
        assert!(!(pruned && changed));
        assert!(better.is_none_or(|better| better == changed));
    }

    macro_rules! numbers_obey {
        ($($name:ident: $number:ty, $values:expr;)+) => {
            proptest! {$(
                #[test]
                fn $name(values in [$values, $values, $values]) {
                    let [a, b, _]: [$number; 3] = values;
                    laws::<Min<$number>, _>(values, |value| *value);
                    laws::<Max<$number>, _>(values, |value| *value);
                    prunes::<Min<$number>>(a, b, |value| value);
                    prunes::<Max<$number>>(a, b, |value| value);
                    let with = [(values[0], 'a'), (values[1], 'b'), (values[2], 'c')];
                    laws::<MinWith<$number, char>, _>(with, |value| value.0);
                    laws::<MaxWith<$number, char>, _>(with, |value| value.0);
                    prunes::<MinWith<$number, char>>(with[0], with[1], |value| &value.0);
                    prunes::<MaxWith<$number, char>>(with[0], with[1], |value| &value.0);
                }
            )+}
        };
    }

    /// Any number, with the numbers at the edge more often.
    macro_rules! any_of {
        ($number:ty) => {
            prop_oneof![
                any::<$number>(),
                Just(<$number>::MIN),
                Just(<$number>::MAX),
                Just(<$number>::MAX - <$number>::from(1u8)),
                Just(<$number>::from(0u8)),
                Just(<$number>::from(1u8)),
            ]
        };
    }

    numbers_obey! {
        bytes: u8, any_of!(u8);
        shorts: i16, any_of!(i16);
        words: u32, any_of!(u32);
        signed_words: i32, any_of!(i32);
        longs: u64, any_of!(u64);
        signed_longs: i64, any_of!(i64);
        sizes: usize, any_of!(usize);
        beyond_words: u128, any_of!(u128);
        floats: f64, any_float();
        short_floats: f32, any_float().prop_map(short as fn(f64) -> f32);
    }

    fn short(float: f64) -> f32 {
        float as f32
    }

    fn any_float() -> impl Strategy<Value = f64> {
        let edges = [
            0.0,
            -0.0,
            f64::INFINITY,
            f64::NEG_INFINITY,
            f64::MIN_POSITIVE / 2.0,
        ];
        let any = any::<f64>().prop_filter("a number", |x| !x.is_nan());
        prop_oneof![any, proptest::sample::select(edges.to_vec())]
    }

    proptest! {
        #[test]
        fn pairs(values: [(u8, i8); 3]) {
            laws::<Min<(u8, i8)>, _>(values, |value| *value);
            prunes::<Max<(u8, i8)>>(values[0], values[1], |value| value);
        }

        #[test]
        fn bits(values: [u8; 3], switches: [bool; 3]) {
            laws::<Or<u8>, _>(values, |value| *value);
            laws::<Or, _>(switches, |value| *value);
            prunes::<Or<u8>>(values[0], values[1], |value| value);
            prunes::<Or>(switches[0], switches[1], |value| value);
        }

        #[test]
        fn sets(values in [
            collection::btree_set(0..6u8, 0..5),
            collection::btree_set(0..6u8, 0..5),
            collection::btree_set(0..6u8, 0..5),
        ]) {
            laws::<Union<BTreeSet<u8>>, _>(values.clone(), Clone::clone);
            let hashed = values.clone().map(HashSet::<u8>::from_iter);
            laws::<Union<HashSet<u8>>, _>(hashed, Clone::clone);
            let [a, b, _] = values;
            prunes::<Union<BTreeSet<u8>>>(a, b, |value| value);
        }
    }

    #[test]
    fn what_is_no_number_neither_prunes_nor_is_pruned() {
        assert!(!Min::<f64>::is_value(&f64::NAN) && Min::<f64>::is_value(&f64::INFINITY));
        assert!(!MinWith::<f64, ()>::is_value(&(f64::NAN, ())));
        assert!(!Min::prunes(&1.0, &f64::NAN) && !MaxWith::<_, ()>::prunes(&(1.0, ()), &f64::NAN));
        assert_eq!(Min::<f64>::threshold(&f64::NAN), None);
    }

    #[test]
    fn ties_are_pruned_only_by_those_who_keep_the_solution() {
        assert!(!Min::prunes(&5, &5) && !Max::prunes(&5, &5));
        assert!(MinWith::<_, ()>::prunes(&(5, ()), &5) && MaxWith::<_, ()>::prunes(&(5, ()), &5));
    }
}

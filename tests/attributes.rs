//! Types with each attribute of serde: what is read is what was written, or an error that says what to do.
#![cfg(not(feature = "serial"))]
#![forbid(unsafe_code)]

mod common;

use std::{
    cell::Cell,
    collections::{BTreeMap, HashMap},
    fmt::Debug,
};

use common::{Habits, Report, Watchdog, give_way, outside, until};
use proptest::prelude::*;
use satin::{
    Shared,
    job::codec::{self, Effort},
    spawnable,
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

/// Declares a type, with what derives and strategies need.
macro_rules! types {
    ($($(#[$attribute:meta])* $kind:ident $name:ident $body:tt)*) => {$(
        #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
        $(#[$attribute])*
        $kind $name $body
    )*};
}

// ------------------------------------------------------------------------------------------------- what travels
types! {
    #[serde(rename = "other", rename_all(serialize = "camelCase", deserialize = "kebab-case"), deny_unknown_fields)]
    struct Renamed {
        first_field: u8,
        #[serde(alias = "x", default)]
        second_field: String,
        #[serde(rename = "third")]
        and_another: Option<Box<Renamed>>,
    }

    #[serde(transparent)]
    struct Transparent { only: Vec<u16> }

    #[serde(from = "(u32, String)", into = "(u32, String)")]
    struct Through { number: u32, text: String }

    #[serde(try_from = "u8", into = "u8")]
    struct Small { below_100: u8 }

    struct With {
        #[serde(with = "reversed")]
        text: String,
        #[serde(serialize_with = "reversed::serialize", deserialize_with = "reversed::deserialize")]
        other: String,
        #[serde(with = "serde_bytes_like")]
        bytes: Vec<u8>,
    }

    struct Skipped {
        first: u64,
        #[serde(skip)]
        cache: Option<String>,
        last: String,
    }

    #[serde(rename_all = "SCREAMING_SNAKE_CASE")]
    enum Kinds {
        Unit,
        New(u8),
        #[serde(rename = "both")]
        Tuple(u8, String),
        Struct { field: i16, #[serde(default)] other: Option<u8> },
        #[serde(skip)]
        #[allow(dead_code)]
        Hidden,
    }
}

impl From<(u32, String)> for Through {
    fn from((number, text): (u32, String)) -> Through {
        Through { number, text }
    }
}

impl From<Through> for (u32, String) {
    fn from(Through { number, text }: Through) -> (u32, String) {
        (number, text)
    }
}

impl TryFrom<u8> for Small {
    type Error = String;
    fn try_from(below_100: u8) -> Result<Small, String> {
        match below_100 {
            0..100 => Ok(Small { below_100 }),
            _ => Err("not below 100".into()),
        }
    }
}

impl From<Small> for u8 {
    fn from(small: Small) -> u8 {
        small.below_100
    }
}

mod reversed {
    use super::*;

    pub fn serialize<S: serde::Serializer>(text: &str, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&text.chars().rev().collect::<String>())
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<String, D::Error> {
        Ok(String::deserialize(from)?.chars().rev().collect())
    }
}

mod serde_bytes_like {
    use super::*;

    pub fn serialize<S: serde::Serializer>(bytes: &[u8], to: S) -> Result<S::Ok, S::Error> {
        to.serialize_bytes(bytes)
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
        Vec::deserialize(from)
    }
}

// ------------------------------------------------------------------------------------- what does not, or not always
types! {
    struct LeftOut {
        #[serde(skip_serializing_if = "Option::is_none")]
        discount: Option<u8>,
        paid: u8,
        sent: String,
    }

    struct WrittenOnly {
        first: String,
        #[serde(skip_deserializing)]
        second: String,
        third: String,
    }

    struct ReadOnly {
        first: String,
        #[serde(skip_serializing)]
        second: String,
        third: String,
    }

    enum HiddenBetween {
        First,
        #[serde(skip)]
        #[allow(dead_code)]
        Hidden,
        Second,
        Third { text: String, #[serde(skip_serializing)] more: String },
        Fourth(String),
    }

    #[serde(untagged)]
    enum Untagged { Number(u64), Text(String) }

    #[serde(tag = "kind")]
    enum Internal { Empty, Filled { text: String } }

    #[serde(tag = "kind", content = "what")]
    enum Adjacent { Empty, New(String), Tuple(u8, String), Struct { text: String } }

    struct Flat {
        number: u8,
        #[serde(flatten)]
        rest: BTreeMap<String, u8>,
    }

    enum OneUntagged {
        Plain(u8),
        #[serde(untagged)]
        Any(String),
    }
}

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct TupleReadOnly(String, #[serde(skip_serializing)] String, String);

fn text() -> impl Strategy<Value = String> {
    "[a-c]{0,30}"
}

fn renamed() -> impl Strategy<Value = Renamed> {
    let leaf = (any::<u8>(), text()).prop_map(|(first_field, second_field)| Renamed {
        first_field,
        second_field,
        and_another: None,
    });
    leaf.prop_recursive(4, 4, 1, |inner| {
        (any::<u8>(), text(), proptest::option::of(inner)).prop_map(
            |(first_field, second_field, inner)| Renamed {
                first_field,
                second_field,
                and_another: inner.map(Box::new),
            },
        )
    })
}

fn kinds() -> impl Strategy<Value = Kinds> {
    prop_oneof![
        Just(Kinds::Unit),
        any::<u8>().prop_map(Kinds::New),
        (any::<u8>(), text()).prop_map(|(a, b)| Kinds::Tuple(a, b)),
        any::<(i16, Option<u8>)>().prop_map(|(field, other)| Kinds::Struct { field, other }),
    ]
}

/// A value of any type here, and of several at once.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
enum Any {
    Renamed(Renamed),
    Transparent(Transparent),
    Through(Through),
    Small(Small),
    With(With),
    Skipped(Skipped),
    Kinds(Kinds),
    LeftOut(LeftOut),
    WrittenOnly(WrittenOnly),
    ReadOnly(ReadOnly),
    TupleReadOnly(TupleReadOnly),
    HiddenBetween(HiddenBetween),
    Untagged(Untagged),
    Internal(Internal),
    Adjacent(Adjacent),
    Flat(Flat),
    OneUntagged(OneUntagged),
    Json(serde_json::Value),
    Map(HashMap<String, Any>),
    List(Vec<Any>),
    Perhaps(Option<Box<Any>>),
    Result(Result<Box<Any>, String>),
}

/// Values of types that travel.
fn travelling() -> impl Strategy<Value = Any> {
    prop_oneof![
        renamed().prop_map(Any::Renamed),
        any::<Vec<u16>>().prop_map(|only| Any::Transparent(Transparent { only })),
        (any::<u32>(), text()).prop_map(|pair| Any::Through(pair.into())),
        (0u8..100).prop_map(|below_100| Any::Small(Small { below_100 })),
        (text(), text(), any::<Vec<u8>>()).prop_map(|(text, other, bytes)| Any::With(With {
            text,
            other,
            bytes
        })),
        (any::<u64>(), text()).prop_map(|(first, last)| Any::Skipped(Skipped {
            first,
            cache: None,
            last
        })),
        kinds().prop_map(Any::Kinds),
    ]
}

/// Values of types that do not, or not all of which do.
fn staying() -> impl Strategy<Value = Any> {
    let three = || (text(), text(), text());
    prop_oneof![
        any::<(Option<u8>, u8, String)>().prop_map(|(discount, paid, sent)| Any::LeftOut(
            LeftOut {
                discount,
                paid,
                sent
            }
        )),
        three().prop_map(|(first, second, third)| Any::WrittenOnly(WrittenOnly {
            first,
            second,
            third
        })),
        three().prop_map(|(first, second, third)| Any::ReadOnly(ReadOnly {
            first,
            second,
            third
        })),
        three().prop_map(|(a, b, c)| Any::TupleReadOnly(TupleReadOnly(a, b, c))),
        prop_oneof![
            Just(HiddenBetween::First),
            Just(HiddenBetween::Second),
            (text(), text()).prop_map(|(text, more)| HiddenBetween::Third { text, more }),
            text().prop_map(HiddenBetween::Fourth),
        ]
        .prop_map(Any::HiddenBetween),
        prop_oneof![
            any::<u64>().prop_map(Untagged::Number),
            text().prop_map(Untagged::Text)
        ]
        .prop_map(Any::Untagged),
        prop_oneof![
            Just(Internal::Empty),
            text().prop_map(|text| Internal::Filled { text })
        ]
        .prop_map(Any::Internal),
        prop_oneof![
            Just(Adjacent::Empty),
            text().prop_map(Adjacent::New),
            (any::<u8>(), text()).prop_map(|(a, b)| Adjacent::Tuple(a, b)),
            text().prop_map(|text| Adjacent::Struct { text })
        ]
        .prop_map(Any::Adjacent),
        (
            any::<u8>(),
            proptest::collection::btree_map(text(), any::<u8>(), 0..4)
        )
            .prop_map(|(number, rest)| Any::Flat(Flat { number, rest })),
        prop_oneof![
            any::<u8>().prop_map(OneUntagged::Plain),
            text().prop_map(OneUntagged::Any)
        ]
        .prop_map(Any::OneUntagged),
        prop_oneof![
            Just(serde_json::Value::Null),
            any::<i32>().prop_map(Into::into),
            text().prop_map(Into::into)
        ]
        .prop_map(Any::Json),
    ]
}

/// Values in lists, maps, options, results.
fn nested(leaf: impl Strategy<Value = Any> + 'static) -> impl Strategy<Value = Any> {
    leaf.prop_recursive(3, 12, 4, |inner| {
        let some = inner.clone().prop_map(|any| Some(Box::new(any)));
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Any::List),
            proptest::collection::hash_map(text(), inner.clone(), 0..4).prop_map(Any::Map),
            prop_oneof![Just(None), some].prop_map(Any::Perhaps),
            prop_oneof![
                inner.prop_map(|any| Ok(Box::new(any))),
                text().prop_map(Err)
            ]
            .prop_map(Any::Result),
        ]
    })
}

/// What is read is what was written; or the error of writing it.
fn arrives<T>(value: &T) -> Result<(), codec::CodecError>
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let bytes = codec::write_for::<T, T>("writing", value, Effort::ANY)?;
    match codec::read::<T>("reading", &bytes) {
        Ok(read) => assert_eq!(&read, value),
        // Only what asks for a format that describes itself is found out when it is read: it may stand beside what has been tried.
        Err(error) => assert!(error.is_of_type(), "{value:?}: {error}"),
    }
    Ok(())
}

proptest! {
    #[test]
    fn what_is_read_is_what_was_written(value in nested(travelling())) {
        prop_assert_eq!(arrives(&value), Ok(()));
    }

    #[test]
    fn it_is_what_was_written_or_an_error_of_the_type(value in nested(prop_oneof![travelling(), staying()])) {
        if let Err(error) = arrives(&value) {
            prop_assert!(error.is_of_type(), "{}: {:?}", error, value);
        }
    }
}

/// The error of a value that cannot travel.
fn error<T>(value: T) -> String
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let error = arrives(&value).expect_err("it cannot travel");
    assert!(error.is_of_type());
    error.to_string()
}

#[test]
fn errors_name_the_type_and_the_field() {
    let left_out = LeftOut {
        discount: None,
        paid: 0,
        sent: "a".repeat(120),
    };
    assert!(
        arrives(&LeftOut {
            discount: Some(1),
            ..left_out.clone()
        })
        .is_ok()
    );
    let text = || "aaa".to_owned();
    let [first, second, third] = [text(), text(), text()];
    let written_only = WrittenOnly {
        first,
        second,
        third,
    };
    let [first, second, third] = [text(), text(), text()];
    let read_only = ReadOnly {
        first,
        second,
        third,
    };
    let cases = [
        (error(left_out), "`discount` of `LeftOut` is left out"),
        (
            error(written_only),
            "`WrittenOnly` writes 3 fields and reads 2",
        ),
        (error(read_only), "`ReadOnly` writes 2 fields and reads 3"),
        (
            error(HiddenBetween::Second),
            "`Second` of `HiddenBetween` is read as another variant",
        ),
        (
            error(Untagged::Number(7)),
            "can be read only from a format that says what follows",
        ),
        (
            error(vec![(1, Some(Internal::Empty))]),
            "can be read only from a format that says what follows",
        ),
        (
            error(Flat {
                number: 1,
                rest: BTreeMap::new(),
            }),
            "does not say how many entries it has",
        ),
        (
            error(serde_json::json!({"a": 1})),
            "`serde_json::value::Value` can be read only from",
        ),
    ];
    for (error, part) in cases {
        assert!(error.contains(part), "{error}");
    }
}

#[test]
fn who_announces_other_numbers_of_parts_than_it_writes_is_told() {
    #[derive(PartialEq, Debug)]
    struct Liar;
    impl Serialize for Liar {
        fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
            use serde::ser::SerializeSeq;
            let mut sequence = to.serialize_seq(Some(3))?;
            sequence.serialize_element("one")?;
            sequence.end()
        }
    }
    impl<'de> Deserialize<'de> for Liar {
        fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Liar, D::Error> {
            Vec::<String>::deserialize(from).map(|_| Liar)
        }
    }
    assert!(error(Liar).contains("announces 3 parts and writes 1"));
}

// ------------------------------------------------------------------------------------------------- through the gate
/// Declares functions over a tree whose leaves have values of that type.
macro_rules! sums {
    ($($argument:ident $result:ident $shared:ident: $of:ty = $value:expr;)*) => {$(
        #[spawnable]
        fn $argument(depth: u32, value: &$of) -> u64 {
            if depth == 0 {
                give_way();
                return u64::from(*value == $value);
            }
            $argument(depth - 1, value) + $argument(depth - 1, value)
        }

        #[spawnable]
        fn $shared(depth: u32, value: Shared<$of>) -> u64 {
            if depth == 0 {
                give_way();
                return u64::from(*value == $value);
            }
            $shared(depth - 1, value.clone()) + $shared(depth - 1, value)
        }

        #[spawnable]
        fn $result(depth: u32) -> Vec<$of> {
            if depth == 0 {
                give_way();
                return vec![$value];
            }
            let mut all = satin::spawn!($result(depth - 1));
            let mut more = $result(depth - 1);
            satin::sync!();
            all.append(&mut more);
            all
        }
    )*};
}

sums! {
    left_out left_out_result left_out_shared: LeftOut = LeftOut { discount: None, paid: 0, sent: "a".repeat(120) };
    json json_result json_shared: serde_json::Value = serde_json::json!({"a": [1, "b", null]});
    hidden hidden_result hidden_shared: HiddenBetween = HiddenBetween::Second;
}

/// Runs until the thief has asked often, and gives what became of the jobs.
fn after_many_thefts(name: &'static str, program: impl FnMut()) {
    let _watchdog = Watchdog::new(name);
    let (a, b) = (outside::pool(1), outside::pool(2));
    let habits = Habits {
        may_refuse: true,
        ..Habits::default()
    };
    let rounds = Cell::new(0);
    let enough = |report: &Report| {
        rounds.set(rounds.get() + 1);
        assert!(report.returned < 100, "jobs go back and forth: {report:?}");
        rounds.get() >= 3
    };
    until(&a, &b, habits, enough, program);
}

#[test]
fn what_cannot_travel_is_computed_where_it_is() {
    let left_out_value = LeftOut {
        discount: None,
        paid: 0,
        sent: "a".repeat(120),
    };
    let json_value = serde_json::json!({"a": [1, "b", null]});
    after_many_thefts("what_cannot_travel_is_computed_where_it_is", || {
        assert_eq!(left_out(6, &left_out_value), 64);
        assert_eq!(json(6, &json_value), 64);
        assert_eq!(hidden(6, &HiddenBetween::Second), 64);
        assert_eq!(left_out_shared(6, Shared::new(left_out_value.clone())), 64);
        assert_eq!(json_shared(6, Shared::new(json_value.clone())), 64);
        assert_eq!(hidden_shared(6, Shared::new(HiddenBetween::Second)), 64);
        assert_eq!(left_out_result(6), vec![left_out_value.clone(); 64]);
        assert_eq!(json_result(6), vec![json_value.clone(); 64]);
        assert_eq!(hidden_result(6), vec![HiddenBetween::Second; 64]);
    });
}

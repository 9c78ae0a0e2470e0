//! Parts of loops as they travel: as an argument of [`PartOfLoop`](super::PartOfLoop), and with what comes back of it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de, ser::Error as _};

use super::{Part, Piece, hosted::HostedLoop};
use crate::job::{Payload, ValueName, kinds::Kind, needs};

/// The kind of argument that a part of a loop is. The places of its results are borrowed, as those of a `&mut [T]`.
pub struct LoopPart;

impl Kind for LoopPart {
    type Arg<'s> = Part<'s>;
    type Sent<'a> = PartSent<'a>;
    type Own = HostedLoop;
    type Back = Results;

    fn sent<'a>(arg: &'a Part<'_>) -> PartSent<'a> {
        PartSent(arg)
    }

    fn lend(own: &mut Option<HostedLoop>) -> Part<'_> {
        own.as_mut().expect("an argument is lent once").whole()
    }

    fn give_back(own: Option<HostedLoop>) -> Results {
        let results = own.map(HostedLoop::into_results);
        Results(results.unwrap_or_default())
    }

    /// # Panics
    /// If another number of results has come, which only a corrupted frame can cause, or one cannot be read.
    fn copy_back(arg: Part<'_>, Results(results): Results) {
        let places = arg.places();
        assert_eq!(
            places.len(),
            results.len(),
            "another node has sent another number of results than its part of the loop has"
        );
        for (at, result) in places.zip(results) {
            // SAFETY: the part has the element.
            let put = unsafe { arg.calls.put(at, result) };
            let function = arg.calls.function();
            put.unwrap_or_else(|error| {
                panic!(
                    "a result of `{function}`, which another node has sent, cannot be read: {error}"
                )
            });
        }
    }

    type Seen<'a> = ResultsSeen<'a>;

    fn relend<'a>(held: &'a mut Option<Part<'_>>) -> Part<'a> {
        let part = held.as_mut().expect("an argument is lent once");
        Part {
            calls: part.calls,
            from: part.from,
            to: part.to,
        }
    }

    fn seen<'a>(held: &'a Option<Part<'_>>) -> ResultsSeen<'a> {
        ResultsSeen(held.as_ref().expect("an argument is lent once"))
    }
}

/// A part of a loop, as serde is to see it.
pub struct PartSent<'a>(&'a Part<'a>);

/// A part of a loop as it is read: as [`PartSent`] has written it.
#[derive(Deserialize)]
pub(super) struct PartRead {
    pub(super) function: String,
    pub(super) joined_by: Option<String>,
    pub(super) calls: Vec<Piece>,
}

impl Serialize for PartSent<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct PartWritten<'a> {
            function: &'static str,
            joined_by: Option<&'static str>,
            calls: CallsSent<'a>,
        }

        let calls = self.0.calls;
        let written = PartWritten {
            function: calls.function(),
            joined_by: calls.joined_by(),
            calls: CallsSent(self.0),
        };
        written.serialize(to)
    }
}

struct CallsSent<'a>(&'a Part<'a>);
struct CallSent<'a>(&'a Part<'a>, usize);

impl Serialize for CallsSent<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let Part { from, to: past, .. } = *self.0;
        to.collect_seq((from..past).map(|at| CallSent(self.0, at)))
    }
}

impl Serialize for CallSent<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let call = self.0.calls.call(self.1).map_err(S::Error::custom)?;
        call.serialize(to)
    }
}

/// The results of a part that another node has run.
#[derive(Serialize, Deserialize)]
pub struct Results(Vec<Piece>);

/// The results of a part that has run here, as they would travel.
pub struct ResultsSeen<'a>(&'a Part<'a>);

struct ResultSeen<'a>(&'a Part<'a>, usize);

impl Serialize for ResultsSeen<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let results = self.0.places().map(|at| ResultSeen(self.0, at));
        // As the struct of one field that is read.
        to.serialize_newtype_struct("Results", &Sequence(results))
    }
}

struct Sequence<I>(I);

impl<I: Iterator<Item: Serialize> + Clone> Serialize for Sequence<I> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0.clone())
    }
}

impl Serialize for ResultSeen<'_> {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        // SAFETY: the part has the element.
        let result = unsafe { self.0.calls.result(self.1) };
        result.map_err(S::Error::custom)?.serialize(to)
    }
}

impl Serialize for Piece {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        needs::pass_on(&self.values);
        let values: Vec<ValueName> = self.values.iter().map(|value| value.name()).collect();
        (&self.bytes, values).serialize(to)
    }
}

impl<'de> Deserialize<'de> for Piece {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Piece, D::Error> {
        let (bytes, names) = <(Payload, Vec<ValueName>)>::deserialize(from)?;
        let hold = |name: ValueName| {
            needs::find(name).ok_or_else(|| {
                de::Error::custom(format_args!(
                    "the shared value {name:?} is not in this process: its handle can be read only where the value is"
                ))
            })
        };
        let values = names.into_iter().map(hold).collect::<Result<_, _>>()?;
        Ok(Piece { bytes, values })
    }
}

//! Job ids: the path from the root to a job, as bytes that sort in execution order.

use std::{collections::BTreeMap, fmt, hash::Hasher as _};

use serde::{Deserialize, Serialize};
use twox_hash::XxHash3_64;

/// The path from the root to a job in the execution tree: one element per level, the index of the child among its
/// parent's spawns.
///
/// The encoding makes "is an ancestor of" the same as "is a prefix of", and the order of bytes the order of
/// execution: an index below 248 is one byte, a larger one is a length byte (248 + number of bytes - 1) followed by
/// the index, big-endian and without leading zeros. The first element numbers the root jobs.
///
/// ```
/// use satin_runtime::job::JobId;
/// let parent = JobId::ROOT.child(0).child(7);
/// let child = parent.child(300);
/// assert_eq!(child.to_string(), "0.7.300");
/// assert!(parent.is_ancestor_of(&child) && parent < child && child < parent.child(301));
/// ```
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>")]
pub struct JobId(Vec<u8>);

/// Bytes that are no job's id.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("it is no job id")]
pub struct NoJobId;

impl TryFrom<Vec<u8>> for JobId {
    type Error = NoJobId;

    /// Each path has one encoding, and nothing else is taken for an id: otherwise a job could have two.
    fn try_from(bytes: Vec<u8>) -> Result<JobId, NoJobId> {
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (_, length) = first(rest).ok_or(NoJobId)?;
            let digits = &rest[1..length];
            let regular = match digits {
                [] => true,
                [only] => u32::from(*only) >= FIRST_LONG,
                [most, ..] => *most != 0 && digits.len() <= 4,
            };
            if !regular {
                return Err(NoJobId);
            }
            rest = &rest[length..];
        }
        Ok(JobId(bytes))
    }
}

/// Indices from here on take more than one byte.
const FIRST_LONG: u32 = 248;

impl JobId {
    /// The empty path, of which every job is a descendant.
    pub const ROOT: JobId = JobId(Vec::new());

    /// The id of this job's child number `index`.
    #[must_use]
    pub fn child(&self, index: u32) -> JobId {
        let mut bytes = Vec::with_capacity(self.0.len() + 5);
        bytes.extend_from_slice(&self.0);
        push(&mut bytes, index);
        JobId(bytes)
    }

    /// The id of the job that the path leads to from this one.
    #[must_use]
    pub fn descendant(&self, path: impl IntoIterator<Item = u32>) -> JobId {
        let mut bytes = self.0.clone();
        for index in path {
            push(&mut bytes, index);
        }
        JobId(bytes)
    }

    /// True for `other` itself and for everything below this job.
    #[must_use]
    pub fn is_ancestor_of(&self, other: &JobId) -> bool {
        other.0.starts_with(&self.0)
    }

    /// Removes what a map has at and below this job.
    pub fn take_below<V>(&self, map: &mut BTreeMap<JobId, V>) -> Vec<V> {
        let mut taken = Vec::new();
        while let Some((at, _)) = map.range(self.clone()..).next()
            && self.is_ancestor_of(at)
        {
            let at = at.clone();
            taken.extend(map.remove(&at));
        }
        taken
    }

    /// The indices, from the root down.
    pub fn path(&self) -> impl Iterator<Item = u32> + '_ {
        let mut rest = self.0.as_slice();
        std::iter::from_fn(move || {
            let (index, length) = first(rest)?;
            rest = &rest[length..];
            Some(index)
        })
    }

    /// The number of indices: how deep in the execution tree the job stands. Quicker than counting them.
    #[must_use]
    pub fn depth(&self) -> usize {
        /// Bytes that are looked at together.
        const BLOCK: usize = 32;
        let (mut rest, mut depth) = (self.0.as_slice(), 0);
        while !rest.is_empty() {
            // Nearly all indices are below 248.
            if let Some((block, more)) = rest.split_first_chunk::<BLOCK>()
                && u32::from(block.iter().fold(0, |most, byte| *byte.max(&most))) < FIRST_LONG
            {
                (rest, depth) = (more, depth + BLOCK);
                continue;
            }
            let Some((_, length)) = first(rest) else {
                break;
            };
            (rest, depth) = (&rest[length..], depth + 1);
        }
        depth
    }

    /// The number of the root job that it is, or belongs to.
    #[must_use]
    pub fn root_number(&self) -> u32 {
        self.path().next().unwrap_or(0)
    }

    /// True for the id of a root job itself.
    #[must_use]
    pub fn is_root_job(&self) -> bool {
        self.path().nth(1).is_none()
    }

    /// Goes down to the child number `index`.
    pub(crate) fn push(&mut self, index: u32) {
        push(&mut self.0, index);
    }

    /// Goes up to the job whose id has `length` bytes.
    pub(crate) fn truncate(&mut self, length: usize) {
        self.0.truncate(length);
    }

    /// Takes the last index off: the parent's id is left.
    pub fn pop(&mut self) -> Option<u32> {
        let (index, start) = self.last()?;
        self.0.truncate(start);
        Some(index)
    }

    /// True for two children of one parent, and for a job and itself.
    #[must_use]
    pub fn is_sibling_of(&self, other: &JobId) -> bool {
        match (self.last(), other.last()) {
            (Some((_, here)), Some((_, there))) => self.0[..here] == other.0[..there],
            _ => false,
        }
    }

    /// The last index, and where it begins.
    fn last(&self) -> Option<(u32, usize)> {
        let mut start = 0;
        loop {
            let (index, length) = first(&self.0[start..])?;
            if start + length == self.0.len() {
                return Some((index, start));
            }
            start += length;
        }
    }

    /// The lowest job above both; one of the two, if it is above the other.
    #[must_use]
    pub fn common_with(&self, other: &JobId) -> JobId {
        let mut end = 0;
        while let Some((_, length)) = first(&self.0[end..])
            && other.0[end..].starts_with(&self.0[end..end + length])
        {
            end += length;
        }
        JobId(self.0[..end].to_vec())
    }

    /// The bytes: at most 5 per level.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

/// The first index in these bytes, and how many it takes.
fn first(bytes: &[u8]) -> Option<(u32, usize)> {
    let (&first, rest) = bytes.split_first()?;
    let length = usize::from(first).saturating_sub(FIRST_LONG as usize - 1);
    if length == 0 {
        return Some((u32::from(first), 1));
    }
    let digits = rest.get(..length)?;
    let index = digits
        .iter()
        .fold(0, |index, digit| index << 8 | u32::from(*digit));
    Some((index, 1 + length))
}

fn push(bytes: &mut Vec<u8>, index: u32) {
    if index < FIRST_LONG {
        bytes.push(index as u8);
        return;
    }
    let digits = index.to_be_bytes();
    let zeros = index.leading_zeros() as usize / 8;
    bytes.push((FIRST_LONG as usize - 1 + digits.len() - zeros) as u8);
    bytes.extend_from_slice(&digits[zeros..]);
}

impl FromIterator<u32> for JobId {
    fn from_iter<I: IntoIterator<Item = u32>>(path: I) -> JobId {
        let mut bytes = Vec::new();
        path.into_iter().for_each(|index| push(&mut bytes, index));
        JobId(bytes)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (level, index) in self.path().enumerate() {
            let dot = if level == 0 { "" } else { "." };
            write!(f, "{dot}{index}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JobId({self})")
    }
}

/// The identity of a computation: an XXH3 hash over the function's stable name and its serialized arguments.
///
/// It tells calls of one program apart, which nobody forges, so speed counts: the arguments of a root job may be all the memory there
/// is. (What comes from elsewhere by its name, such as a shared value, is named by a cryptographic hash.)
///
/// An id names the same work in a second execution only if the parent did the same thing again, so wherever a result
/// is reused the id and the fingerprint must both match.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize, PartialOrd, Ord)]
pub struct Fingerprint(pub u64);

impl Fingerprint {
    /// The fingerprint of a call of the function with that stable name.
    #[must_use]
    pub fn of(name: &str, arguments: &[u8]) -> Fingerprint {
        let mut hasher = Fingerprint::hasher(name);
        hasher.write(arguments);
        Fingerprint(hasher.finish())
    }

    /// The hasher of a function's name, to be fed with the arguments.
    pub(crate) fn hasher(name: &str) -> XxHash3_64 {
        let mut hasher = XxHash3_64::with_seed(0);
        // The length first, so that no name and arguments run into those of another function.
        hasher.write(&(name.len() as u64).to_le_bytes());
        hasher.write(name.as_bytes());
        hasher
    }

    /// The fingerprint of a job as a part of this root job. Results of its jobs depend on its bounds; so they are results
    /// of no other root job, though another may have a job of the same id and arguments.
    #[must_use]
    pub fn within(self, root: Fingerprint) -> Fingerprint {
        // The two are hashes already, of unlike things.
        Fingerprint(self.0 ^ root.0)
    }
}

/// The name of a job: its place in the execution tree, and what it computes there. A result is used again only under the
/// name that it was computed for.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct JobName {
    /// The job's place in the execution tree.
    pub id: JobId,
    /// The fingerprint of what it computes.
    pub fingerprint: Fingerprint,
}

impl JobName {
    /// The name of the job of that id which computes that.
    #[must_use]
    pub fn new(id: JobId, fingerprint: Fingerprint) -> JobName {
        JobName { id, fingerprint }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::{collection::vec, prelude::*};

    fn path() -> impl Strategy<Value = Vec<u32>> {
        vec(
            prop_oneof![0..4u32, 245..260u32, 65_530..65_540u32, any::<u32>()],
            0..6,
        )
    }

    proptest! {
        #[test]
        fn long_paths_are_counted(paths in vec((path(), 0..100_usize), 0..4)) {
            let level = |(path, zeros): &(Vec<u32>, usize)| {
                let zeros = std::iter::repeat_n(0, *zeros);
                path.iter().copied().chain(zeros).collect::<Vec<_>>()
            };
            let id: JobId = paths.iter().flat_map(level).collect();
            prop_assert_eq!(id.depth(), id.path().count());
        }

        #[test]
        fn ids_read_back_as_the_path_they_were_made_of(path in path()) {
            let id: JobId = path.iter().copied().collect();
            prop_assert_eq!(id.path().collect::<Vec<_>>(), path.clone());
            prop_assert_eq!(id.depth(), path.len());
            let shown: Vec<String> = path.iter().map(u32::to_string).collect();
            prop_assert_eq!(id.to_string(), shown.join("."));
        }

        #[test]
        fn what_is_taken_for_an_id_is_written_as_ids_are(bytes in vec(prop_oneof![0..4u8, 246..=255u8, any::<u8>()], 0..9)) {
            if let Ok(id) = JobId::try_from(bytes) {
                prop_assert_eq!(&id.path().collect::<JobId>(), &id);
                let bytes = postcard::to_stdvec(&id).expect("written");
                prop_assert_eq!(postcard::from_bytes::<JobId>(&bytes).expect("read"), id);
            }
        }

        #[test]
        fn every_path_is_an_id(path in path()) {
            let id: JobId = path.into_iter().collect();
            prop_assert_eq!(JobId::try_from(id.as_bytes().to_vec()), Ok(id));
        }

        #[test]
        fn ids_sort_in_execution_order(a in path(), b in path()) {
            let (x, y): (JobId, JobId) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
        }

        #[test]
        fn an_ancestor_is_a_prefix(a in path(), b in path()) {
            let (x, y): (JobId, JobId) = (a.iter().copied().collect(), b.iter().copied().collect());
            prop_assert_eq!(x.is_ancestor_of(&y), b.starts_with(&a));
        }

        #[test]
        fn popping_a_child_gives_the_parent(path in path(), index: u32, other: u32) {
            let parent: JobId = path.iter().copied().collect();
            let mut child = parent.child(index);
            prop_assert!(child.is_sibling_of(&parent.child(other)));
            prop_assert!(!child.is_sibling_of(&parent.child(other).child(index)));
            prop_assert!(!child.is_sibling_of(&parent));
            prop_assert_eq!(child.pop(), Some(index));
            prop_assert_eq!(child, parent);
        }

        #[test]
        fn the_common_ancestor_is_the_lowest(a in path(), b in path(), c in path()) {
            let [a, b, c]: [JobId; 3] = [a, b, c].map(|path| path.into_iter().collect());
            let common = a.common_with(&b);
            prop_assert_eq!(&common, &b.common_with(&a));
            prop_assert!(common.is_ancestor_of(&a) && common.is_ancestor_of(&b));
            if c.is_ancestor_of(&a) && c.is_ancestor_of(&b) {
                prop_assert!(c.is_ancestor_of(&common));
            }
            prop_assert_eq!(&a.common_with(&a), &a);
        }

        #[test]
        fn any_bytes_are_read_without_a_panic(bytes in vec(any::<u8>(), 0..12)) {
            let mut id = JobId(bytes);
            prop_assert!(id.path().count() <= id.0.len());
            let length = id.0.len();
            let popped = id.pop();
            prop_assert!(popped.is_none() || id.0.len() < length);
        }

        #[test]
        fn children_follow_their_parent(a in path(), index: u32) {
            let parent: JobId = a.iter().copied().collect();
            let child = parent.child(index);
            prop_assert!(parent < child && parent.is_ancestor_of(&child));
            prop_assert_eq!(child.path().last(), Some(index));
        }
    }

    /// Names travel, and stand in the orphan table in the order of ids.
    #[test]
    fn a_name_is_written_and_sorted_as_its_two_parts_are() {
        let names = [([0, 1], 2), ([0, 1], 3), ([0, 2], 1)].map(|(path, bits)| {
            let id: JobId = path.into_iter().collect();
            (id, Fingerprint(bits))
        });
        let of = |(id, fingerprint): &(JobId, Fingerprint)| JobName::new(id.clone(), *fingerprint);
        assert!(names.is_sorted() && names.each_ref().map(of).is_sorted());
        for parts in &names {
            let written = postcard::to_stdvec(parts).expect("written");
            assert_eq!(postcard::to_stdvec(&of(parts)), Ok(written));
        }
    }

    #[test]
    fn fingerprints_tell_functions_and_arguments_apart() {
        assert_ne!(Fingerprint::of("f", b"x"), Fingerprint::of("f", b"y"));
        assert_ne!(Fingerprint::of("f", b"x"), Fingerprint::of("fx", b""));
        assert_eq!(Fingerprint::of("f", b"x"), Fingerprint::of("f", b"x"));
    }
}

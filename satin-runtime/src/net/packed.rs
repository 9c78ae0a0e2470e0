//! What goes over a stream of a large message, and when it pays to compress it (LZ4): where the link is slower than the compression.
//!
//! The first byte tells the form: the message as it is, or blocks of it, each with its length in four bytes, and then its length when it is
//! unpacked. Between the two stands the length of the message in eight bytes, for which room is reserved: memory is used as it is filled. All
//! lengths are little-endian. Whoever sends looks at a sample first: numbers that look random stay as they are, over any link.
//!
//! Reading never panics, and never fills more memory than the length says, whatever comes in. Knows nothing of connections.

use std::time::{Duration, Instant};

use bytes::{Buf, Bytes};
use lz4_flex::block;

use super::{
    limits,
    wire::{LargeMessage, WireError},
};
use crate::job::room;

/// The message as it is.
const AS_IT_IS: u8 = 0;
/// Blocks of the message, compressed.
const PACKED: u8 = 1;

/// Bytes of the sample. Smaller: chance decides. Larger: packing it takes longer than short messages take.
const SAMPLE: usize = 16 << 10;

/// Bytes of the message in a block. Smaller: they are less alike. Larger: short messages wait until a block is packed, or unpacked,
/// which takes about half a millisecond.
const BLOCK: usize = 256 << 10;

/// Bytes that stand before a block.
const PREFIX: usize = 4;

/// The longest block, packed: with its length.
const LONGEST: usize = PREFIX + block::get_maximum_output_size(BLOCK);

/// The seconds that unpacking a byte takes, about.
const UNPACK: f64 = 0.7e-9;

/// Packing pays if a byte takes less than this part of the time then. Too small: what is compressed a little goes as it is. Too large: both
/// ends work for nothing.
const GAIN: f64 = 0.8;

/// What packing a sample was like.
#[derive(Clone, Copy, Debug)]
struct Sample {
    /// Bytes of it.
    bytes: usize,
    /// Bytes of it, packed.
    packed: usize,
    took: Duration,
}

impl Sample {
    fn of(bytes: &[u8]) -> Sample {
        let begin = Instant::now();
        let packed = block::compress(bytes).len();
        Sample {
            bytes: bytes.len(),
            packed,
            took: begin.elapsed(),
        }
    }

    /// Does it pay to compress what is like it, over a link of so many bytes a second?
    fn pays(&self, rate: f64) -> bool {
        let bytes = self.bytes as f64;
        let packed = self.took.as_secs_f64() / bytes + UNPACK + self.packed as f64 / bytes / rate;
        packed < GAIN / rate
    }
}

/// What is known of a link before a message goes over it.
#[derive(Clone, Copy, Debug)]
pub(super) struct LinkState {
    pub(super) round_trip: Duration,
    /// Bytes that may be under way.
    pub(super) window: u64,
    /// Bytes a second of large messages before.
    pub(super) rate: Option<f64>,
}

impl LinkState {
    /// The bytes a second that a message of that length will have: a window at a time, which doubles with each round trip, and no more than was
    /// seen before.
    fn rate(&self, length: usize) -> f64 {
        let windows = length as f64 / self.window.max(1) as f64;
        let seconds = self.round_trip.as_secs_f64() * (1.0 + windows).log2();
        let rate = length as f64 / seconds.max(1e-9);
        self.rate.map_or(rate, |seen| seen.min(rate))
    }
}

/// Does it pay to pack that message for such a link?
pub(super) fn pays(message: &LargeMessage, link: &LinkState) -> bool {
    let rate = link.rate(message.length());
    /// Over a faster link nothing is gained, however well it packs: a byte takes some 2 ns at both ends.
    const FASTEST: f64 = 3e8;
    if rate > FASTEST {
        return false;
    }
    let Some(longest) = message.pieces.iter().max_by_key(|piece| piece.len()) else {
        return false;
    };
    // From the middle, as the beginning of a value may be another thing than the rest.
    let begin = longest.len().saturating_sub(SAMPLE) / 2;
    let sample = &longest[begin..longest.len().min(begin + SAMPLE)];
    Sample::of(sample).pays(rate)
}

/// Packs a message, block by block.
pub(super) struct Packer {
    pieces: std::vec::IntoIter<Bytes>,
    piece: Bytes,
}

impl Packer {
    pub(super) fn new(message: LargeMessage) -> Packer {
        Packer {
            pieces: message.pieces.into_iter(),
            piece: Bytes::new(),
        }
    }

    /// The next block as it goes over the stream, and how many bytes of the message it has.
    pub(super) fn next(&mut self) -> Option<(Vec<u8>, usize)> {
        while self.piece.is_empty() {
            self.piece = self.pieces.next()?;
        }
        let raw = self.piece.split_to(self.piece.len().min(BLOCK));
        let packed = block::compress_prepend_size(&raw);
        let mut out = Vec::with_capacity(PREFIX + packed.len());
        out.extend((packed.len() as u32).to_le_bytes());
        out.extend(packed);
        Some((out, raw.len()))
    }
}

/// What stands before a message of that length.
pub(super) fn heading(is_packed: bool, length: usize) -> Bytes {
    let form = if is_packed { PACKED } else { AS_IT_IS };
    let mut heading = vec![form];
    heading.extend((length as u64).to_le_bytes());
    heading.into()
}

/// Takes a stream, and makes the message of it.
#[derive(Default)]
pub struct Body {
    heading: Vec<u8>,
    /// The length that the heading says.
    length: usize,
    /// The beginning of a block.
    block: Vec<u8>,
    message: Vec<u8>,
}

/// Bytes of a [`heading`].
const HEADING: usize = 9;

impl Body {
    /// The next bytes of the stream.
    ///
    /// # Errors
    /// They are none of a message, or of one with more than [`limits::TRANSFER`] bytes, or with more than it said.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), WireError> {
        if self.heading.len() < HEADING {
            let more = bytes.len().min(HEADING - self.heading.len());
            self.heading.extend_from_slice(&bytes[..more]);
            bytes.advance(more);
            if self.heading.len() == HEADING {
                self.begin()?;
            }
        }
        match self.is_packed() {
            true => self.push_packed(bytes),
            false => self.append(bytes),
        }
    }

    /// The heading has come.
    fn begin(&mut self) -> Result<(), WireError> {
        let too_long = |length| WireError::TooLong {
            length,
            limit: limits::TRANSFER,
        };
        let mut heading = &*self.heading;
        if ![AS_IT_IS, PACKED].contains(&heading.get_u8()) {
            return Err(WireError::Bounds("the form of a message"));
        }
        let length = heading.get_u64_le();
        let room = usize::try_from(length).ok();
        let room = room.filter(|room| *room <= limits::TRANSFER);
        let room = room.ok_or_else(|| too_long(length))?;
        self.length = room;
        // Where there is not so much memory in one piece, it grows.
        room::reserve_shared(&mut self.message, room);
        Ok(())
    }

    /// Is the message unpacked as it comes?
    pub fn is_packed(&self) -> bool {
        self.heading.first() == Some(&PACKED)
    }

    /// The whole message, when the stream has ended.
    ///
    /// # Errors
    /// It ended in the middle.
    pub fn finish(self) -> Result<Bytes, WireError> {
        let is_whole = self.message.len() == self.length && self.block.is_empty();
        if self.heading.len() < HEADING || !is_whole {
            return Err(WireError::Truncated);
        }
        Ok(room::share(self.message))
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), WireError> {
        let length = self.message.len() + bytes.len();
        if length > self.length {
            return Err(WireError::TooLong {
                length: length as u64,
                limit: self.length,
            });
        }
        self.message.extend_from_slice(bytes);
        Ok(())
    }

    fn push_packed(&mut self, mut bytes: &[u8]) -> Result<(), WireError> {
        while !bytes.is_empty() {
            let wanted = match self.block.first_chunk::<PREFIX>() {
                None => PREFIX,
                Some(prefix) => {
                    let length = u32::from_le_bytes(*prefix) as usize;
                    if !(1..=LONGEST).contains(&length) {
                        return Err(WireError::Bounds("the length of a block"));
                    }
                    PREFIX + length
                }
            };
            let more = bytes.len().min(wanted - self.block.len());
            self.block.extend_from_slice(&bytes[..more]);
            bytes.advance(more);
            if self.block.len() == wanted && wanted > PREFIX {
                self.unpack()?;
            }
        }
        Ok(())
    }

    /// The block has come in full.
    fn unpack(&mut self) -> Result<(), WireError> {
        let unreadable = |_| WireError::Bounds("a block of a message");
        let (length, packed) =
            block::uncompressed_size(&self.block[PREFIX..]).map_err(unreadable)?;
        if length > BLOCK {
            return Err(WireError::TooLong {
                length: length as u64,
                limit: BLOCK,
            });
        }
        let message = block::decompress(packed, length).map_err(unreadable)?;
        self.append(&message)?;
        self.block.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn packed_stream(message: LargeMessage) -> Vec<u8> {
        let mut stream = heading(true, message.length()).to_vec();
        let mut packer = Packer::new(message);
        while let Some((block, _)) = packer.next() {
            stream.extend(block);
        }
        stream
    }

    fn message(piece: Bytes) -> LargeMessage {
        LargeMessage {
            pieces: vec![piece],
        }
    }

    /// A megabyte of numbers as they look random.
    fn random() -> LargeMessage {
        let numbers =
            (0..1u64 << 17).map(|at| at.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29));
        let numbers = numbers.map(|number| number.wrapping_mul(0xbf58_476d_1ce4_e5b9 ^ number));
        message(numbers.flat_map(u64::to_le_bytes).collect())
    }

    /// A megabyte of small numbers.
    fn counts() -> LargeMessage {
        let counts = (0..1u32 << 18).flat_map(|at| (at % 1000).to_le_bytes());
        message(counts.collect())
    }

    const SLOW: LinkState = LinkState {
        round_trip: MS,
        window: 1 << 20,
        rate: Some(12e6),
    };

    #[test]
    fn small_numbers_are_packed_for_a_slow_link_and_no_others() {
        assert!(pays(&counts(), &SLOW));
        assert!(!pays(&random(), &SLOW), "nothing is gained");
        let fast = LinkState {
            rate: Some(4e9),
            ..SLOW
        };
        assert!(!pays(&counts(), &fast), "that is quicker than packing");
        assert!(!pays(&LargeMessage::default(), &SLOW));
    }

    #[test]
    fn a_long_link_is_slow_until_its_window_has_opened() {
        let far = LinkState {
            round_trip: 100 * MS,
            window: 14_000,
            rate: None,
        };
        assert!(pays(&counts(), &far));
        let near = LinkState {
            round_trip: MS / 50,
            ..far
        };
        assert!(!pays(&counts(), &near), "a few round trips are nothing");
    }

    #[test]
    fn what_is_no_block_is_an_error_before_anything_is_allocated() {
        let read = |bytes: &[u8]| {
            let mut body = Body::default();
            body.push(bytes).and_then(|()| body.finish())
        };
        let packed = |block: &[u8]| read(&[&*heading(true, 100), block].concat());
        assert_eq!(read(&[]), Err(WireError::Truncated));
        assert_eq!(read(&[PACKED, 9, 0]), Err(WireError::Truncated));
        assert_eq!(packed(&[9, 0]), Err(WireError::Truncated));
        assert_eq!(packed(&[9, 0, 0, 0]), Err(WireError::Truncated));
        assert!(matches!(read(&[7; HEADING]), Err(WireError::Bounds(_))));
        let too_long = heading(false, limits::TRANSFER + 1);
        assert!(matches!(read(&too_long), Err(WireError::TooLong { .. })));
        for length in [0, u32::MAX] {
            let block = [&length.to_le_bytes()[..], &[1]].concat();
            assert!(matches!(packed(&block), Err(WireError::Bounds(_))));
        }
        // A few bytes that claim to be a gigabyte.
        let bomb = packed(&[5, 0, 0, 0, 0, 0, 0, 64, 0]);
        assert!(matches!(bomb, Err(WireError::TooLong { .. })));
        let nonsense = packed(&[6, 0, 0, 0, 9, 0, 0, 0, 255, 255]);
        assert!(matches!(nonsense, Err(WireError::Bounds(_))));
        assert_eq!(read(&heading(false, 0)), Ok(Bytes::new()));
    }

    #[test]
    fn a_message_is_as_long_as_it_said() {
        let read = |length: usize| {
            let mut body = Body::default();
            body.push(&heading(false, 100))?;
            body.push(&vec![7; length])?;
            body.finish()
        };
        assert_eq!(read(99), Err(WireError::Truncated));
        let mut cut_off = Body::default();
        let whole = packed_stream(counts());
        assert_eq!(cut_off.push(&whole), Ok(()));
        assert_eq!(cut_off.push(&[9, 0, 0, 0, 1]), Ok(()));
        assert_eq!(
            cut_off.finish(),
            Err(WireError::Truncated),
            "in another block"
        );
        assert_eq!(read(100), Ok(vec![7; 100].into()));
        assert!(matches!(read(101), Err(WireError::TooLong { .. })));
    }

    proptest! {
        #[test]
        fn a_message_is_unpacked_as_it_was(
            lengths in vec(0usize..600_000, 0..4),
            cuts in 1usize..400_000,
            seed: u8,
            is_packed: bool,
        ) {
            let piece = |length: usize| (0..length).map(|at| (at / 7) as u8 ^ seed).collect::<Bytes>();
            let pieces: Vec<Bytes> = lengths.into_iter().map(piece).collect();
            let all: Bytes = pieces.concat().into();
            let stream = match is_packed {
                true => packed_stream(LargeMessage { pieces }),
                false => [heading(false, all.len()), all.clone()].concat(),
            };
            let mut body = Body::default();
            for chunk in stream.chunks(cuts) {
                prop_assert_eq!(body.push(chunk), Ok(()));
            }
            prop_assert_eq!(body.finish(), Ok(all));
        }

        #[test]
        fn whatever_comes_in_nothing_panics(bytes in vec(any::<u8>(), 0..200)) {
            let mut body = Body::default();
            let _ = body.push(&bytes).and_then(|()| body.finish());
        }
    }
}

//! A control stream, cut anywhere: the first byte says how long the pieces are.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::net::wire::{Frames, decode};

const LIMIT: usize = 4096;

fuzz_target!(|data: &[u8]| {
    let Some((&piece, stream)) = data.split_first() else {
        return;
    };
    let mut frames = Frames::new(LIMIT);
    for piece in stream.chunks(usize::from(piece) + 1) {
        frames.push(piece);
        loop {
            match frames.next() {
                Ok(Some(body)) => {
                    assert!(body.len() <= LIMIT);
                    let _ = decode(body);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        assert!(frames.waiting() <= LIMIT + 4 + 256);
    }
});

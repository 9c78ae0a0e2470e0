//! A segment of a log in a store, and a batch as it is written there.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::stable::format::{
    Batches, FramePlace, Sealing, StoreKeys, batch_bytes, read_batch,
};

const PATH: &str = "log";

fuzz_target!(|data: &[u8]| {
    let keys = StoreKeys::derive(b"secret");
    let mut batches = Batches::new(&keys, PATH, data);
    let whole = batches.by_ref().count();
    assert_eq!(batches.torn().is_none(), batches.position() == data.len() as u64);
    assert_eq!(whole == 0, batches.position() == 0);
    // The mac is not for the fuzzer to guess.
    let place = FramePlace {
        path: PATH,
        offset: 0,
    };
    let frame = keys.frame(place, data, Sealing::Plain).expect("it is short");
    let (content, length) = keys.open(place, &frame).expect("it is a frame");
    assert_eq!((&*content, length), (data, frame.len()));
    if let Ok(batch) = read_batch(data) {
        let bytes = batch_bytes(&batch);
        let again = read_batch(&bytes).expect("what was read can be written");
        assert_eq!(batch_bytes(&again), bytes);
        assert_eq!(again.facts.len(), batch.facts.len());
    }
});

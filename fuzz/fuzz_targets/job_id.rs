//! A job id that came from elsewhere: it can be looked at, compared and written.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::job::JobId;

fuzz_target!(|data: &[u8]| {
    let Ok(id) = postcard::from_bytes::<JobId>(data) else {
        return;
    };
    let path: Vec<u32> = id.path().collect();
    let again: JobId = path.iter().copied().collect();
    assert_eq!(again.path().collect::<Vec<u32>>(), path);
    assert_eq!(again, id, "an id is written in one way only");
    let _ = id.to_string();
    let bytes = postcard::to_stdvec(&id).expect("it can be written");
    assert_eq!(postcard::from_bytes::<JobId>(&bytes).expect("read"), id);
});

//! A credential file: also one whose PEM is in order and whose content is not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use satin_runtime::net::Credential;

fuzz_target!(|data: &[u8]| {
    let _ = Credential::parse(data);
});

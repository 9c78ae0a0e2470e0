//! What holds for all of the protocol.

use std::{fs, path::Path};

/// "No socket, no clock, no thread, no randomness of its own", and nothing whose order differs from run to run.
#[test]
fn the_protocol_keeps_its_promise() {
    let forbidden = [
        concat!("std::time::", "Instant"),
        concat!("Instant", "::now"),
        concat!("System", "Time"),
        concat!("std::", "thread"),
        concat!("thread", "::spawn"),
        concat!("Hash", "Map"),
        concat!("Hash", "Set"),
        concat!("std::", "env"),
        concat!("Udp", "Socket"),
        concat!("Tcp", "Stream"),
        concat!("tok", "io"),
        concat!("rand::", "rng("),
        concat!("thread", "_rng"),
        concat!("OsR", "ng"),
    ];
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join("src/node")];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("the source is here") {
            let path = entry.expect("a folder can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("source is text");
                for word in forbidden {
                    assert!(!text.contains(word), "{word} in {}", path.display());
                }
                files += 1;
            }
        }
    }
    assert!(files > 10, "the source of the protocol was not found");
}

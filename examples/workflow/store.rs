//! The directory of outputs. In `content/` are files named by their content; `made/` says for what was made of which command and inputs what
//! its content was; in `steps/` the last outputs have the names of their steps. Knows nothing of the order of steps.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use crate::step::File;

/// The directory that this process has: the one that runs `main`.
static HERE: OnceLock<Store> = OnceLock::new();

/// From now on this process has that directory.
pub fn open(store: Store) {
    // A second `main` in one process has the same arguments.
    let _ = HERE.set(store);
}

/// The directory of this process, if it has one.
pub fn here() -> Option<&'static Store> {
    HERE.get()
}

/// The BLAKE3 hash of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Content([u8; 32]);

/// The BLAKE3 hash of all that an output is made of: the command, and the names and contents that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Key([u8; 32]);

impl Content {
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    fn parse(text: &str) -> Option<Self> {
        let hash = blake3::Hash::from_hex(text.trim()).ok()?;
        Some(Self(*hash.as_bytes()))
    }
}

impl fmt::Display for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl Key {
    /// Of the command, the name of the file that it leaves, and what it reads.
    pub fn of<'a>(
        run: &str,
        output: Option<&str>,
        inputs: impl Iterator<Item = (&'a str, &'a Content)>,
    ) -> Self {
        let mut hasher =
            blake3::Hasher::new_derive_key("satin example workflow, output of a command");
        // Lengths: no two lists of words are the same bytes.
        let mut word = |bytes: &[u8]| {
            hasher.update(&(bytes.len() as u64).to_le_bytes());
            hasher.update(bytes);
        };
        word(run.as_bytes());
        word(output.unwrap_or_default().as_bytes());
        for (name, content) in inputs {
            word(name.as_bytes());
            word(&content.0);
        }
        Self(*hasher.finalize().as_bytes())
    }
}

/// A directory of outputs.
pub struct Store {
    folder: PathBuf,
}

impl Store {
    pub fn new(folder: &Path) -> anyhow::Result<Self> {
        for part in ["content", "made", "steps"] {
            let part = folder.join(part);
            fs::create_dir_all(&part).with_context(|| {
                format!(
                    "cannot make the directory {}: --outputs names another one",
                    part.display()
                )
            })?;
        }
        let folder = folder.to_owned();
        Ok(Self { folder })
    }

    fn path(&self, content: Content) -> PathBuf {
        self.folder.join("content").join(content.to_string())
    }

    /// The output of that key, if it is there and nobody has changed it.
    pub fn find(&self, key: &Key) -> Option<Content> {
        let made = fs::read_to_string(self.folder.join("made").join(key.to_string())).ok()?;
        let content = Content::parse(&made)?;
        let mut hasher = blake3::Hasher::new();
        hasher
            .update_reader(fs::File::open(self.path(content)).ok()?)
            .ok()?;
        (hasher.finalize().as_bytes() == &content.0).then_some(content)
    }

    /// An output that was found.
    pub fn load(&self, content: Content, key: Key) -> anyhow::Result<File> {
        let path = self.path(content);
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        Ok(File {
            content,
            bytes,
            key: Some(key),
            is_found: true,
        })
    }

    /// Puts an output in, if it is not there.
    pub fn keep(&self, file: &File) -> anyhow::Result<()> {
        let Some(key) = file.key else {
            return Ok(());
        };
        if self.find(&key) == Some(file.content) {
            return Ok(());
        }
        self.write(&self.path(file.content), &file.bytes)?;
        // Afterwards: what it names is there.
        let made = self.folder.join("made").join(key.to_string());
        self.write(&made, format!("{}\n", file.content).as_bytes())
    }

    /// Writes a file in one step: another process, or a later run after a crash, never sees half of it.
    fn write(&self, path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let draft = format!(".draft-{}-{number}", std::process::id());
        let draft = self.folder.join(draft);
        fs::write(&draft, bytes)
            .and_then(|()| fs::rename(&draft, path))
            .with_context(|| format!("cannot write {}", path.display()))
    }

    /// Where the last output of the step is.
    pub fn named(&self, step: &str) -> PathBuf {
        self.folder.join("steps").join(step)
    }

    /// Gives the content the name of its step.
    pub fn link(&self, step: &str, content: &Content) -> anyhow::Result<()> {
        let named = self.named(step);
        let _ = fs::remove_file(&named);
        #[cfg(unix)]
        let linked = {
            let to = Path::new("../content").join(content.to_string());
            std::os::unix::fs::symlink(to, &named)
        };
        #[cfg(not(unix))]
        let linked = fs::copy(self.path(*content), &named).map(drop);
        linked.with_context(|| format!("cannot write {}", named.display()))
    }
}

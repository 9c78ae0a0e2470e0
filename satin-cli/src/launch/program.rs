//! The executable that is to run elsewhere: its bytes, the name under which machines keep it, and which machines can
//! run it.

use std::{
    ffi::OsStr,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, Result, ensure};

/// An executable of this machine.
#[derive(Clone, Debug)]
pub struct LocalProgram {
    /// The file here.
    pub path: PathBuf,
    /// Its contents, shared by all that copy them.
    pub bytes: Arc<Vec<u8>>,
    /// The BLAKE3 hash of the contents, in hexadecimal digits: machines keep the program under this name, so the same
    /// program is not copied twice, and a new build does not take the place of one that runs.
    pub hash: String,
    /// The name of the file: it is the default of the pool's name.
    pub name: String,
    /// The kind of machine that it was built for, as `uname -m` calls it; `None` for a script, or a kind not known here.
    pub machine: Option<&'static str>,
}

impl LocalProgram {
    /// Reads the program of a command line: a path, or a name that `PATH` knows.
    ///
    /// # Errors
    /// If it is not there or cannot be read.
    pub fn read(program: &OsStr) -> Result<LocalProgram> {
        let path = find(program).with_context(|| {
            format!(
                "there is no program {}: build it first, and name its executable, such as target/release/NAME",
                program.display()
            )
        })?;
        let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        ensure!(!bytes.is_empty(), "{} is empty", path.display());
        let name = path.file_name().context("a program has a name")?;
        Ok(LocalProgram {
            name: name.to_string_lossy().into_owned(),
            hash: blake3::hash(&bytes).to_hex().to_string(),
            machine: machine(&bytes),
            bytes: Arc::new(bytes),
            path,
        })
    }

    /// Can a machine that `uname -m` calls that run the program, as far as is known?
    #[must_use]
    pub fn runs_on(&self, machine: &str) -> bool {
        let same = |built: &str| match built {
            // 64-bit kernels run these too.
            "i686" => matches!(machine, "i386" | "i486" | "i586" | "i686" | "x86_64"),
            "arm" => machine.starts_with("arm") || machine == "aarch64",
            "aarch64" => matches!(machine, "aarch64" | "arm64"),
            built => machine == built,
        };
        self.machine.is_none_or(same)
    }
}

/// The file that a shell would run.
fn find(program: &OsStr) -> Option<PathBuf> {
    let path = Path::new(program);
    let is_file = |path: &PathBuf| path.is_file();
    if path.components().count() > 1 || path.is_file() {
        return Some(path.to_owned()).filter(is_file);
    }
    let all = std::env::var_os("PATH")?;
    std::env::split_paths(&all)
        .map(|dir| dir.join(path))
        .find(is_file)
}

/// The kind of machine in the header of an ELF file (System V ABI, `e_machine`).
fn machine(bytes: &[u8]) -> Option<&'static str> {
    let header: &[u8; 20] = bytes.first_chunk()?;
    if !header.starts_with(b"\x7fELF") {
        return None;
    }
    let number = [header[18], header[19]];
    let is_little = header[5] == 1;
    let number = match is_little {
        true => u16::from_le_bytes(number),
        false => u16::from_be_bytes(number),
    };
    Some(match number {
        3 => "i686",
        21 if is_little => "ppc64le",
        21 => "ppc64",
        22 => "s390x",
        40 => "arm",
        62 => "x86_64",
        183 => "aarch64",
        243 => "riscv64",
        258 => "loongarch64",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built_for(e_machine: u16, big: bool) -> LocalProgram {
        let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
        bytes[5] = if big { 2 } else { 1 };
        bytes.resize(18, 0);
        bytes.extend(match big {
            true => e_machine.to_be_bytes(),
            false => e_machine.to_le_bytes(),
        });
        LocalProgram {
            path: "program".into(),
            hash: String::new(),
            name: "program".into(),
            machine: machine(&bytes),
            bytes: Arc::new(bytes),
        }
    }

    #[test]
    fn a_program_runs_on_its_own_kind_of_machine() {
        assert!(built_for(62, false).runs_on("x86_64"));
        assert!(!built_for(62, false).runs_on("aarch64"));
        assert!(built_for(183, false).runs_on("arm64"));
        assert!(!built_for(183, false).runs_on("x86_64"));
        assert!(built_for(3, false).runs_on("x86_64"));
        assert!(built_for(22, true).runs_on("s390x"));
        assert!(!built_for(21, true).runs_on("ppc64le"));
        assert!(built_for(60_000, false).runs_on("anything"));
    }

    #[test]
    fn a_script_runs_anywhere() {
        assert_eq!(machine(b"#!/bin/sh\necho a long enough script\n"), None);
        assert_eq!(machine(b"\x7fELF"), None);
    }

    #[test]
    fn programs_of_this_machine_are_known() {
        let test = std::env::current_exe().expect("a test");
        let program = LocalProgram::read(test.as_os_str()).expect("readable");
        assert!(
            program
                .machine
                .is_none_or(|built| built == std::env::consts::ARCH)
        );
        assert_eq!(program.hash.len(), 64);
        let sh = LocalProgram::read(OsStr::new("sh")).expect("there is a shell");
        assert!(sh.path.is_absolute());
        let none = LocalProgram::read(OsStr::new("./no-such-program")).expect_err("none");
        assert!(none.to_string().contains("build it first"), "{none}");
    }
}

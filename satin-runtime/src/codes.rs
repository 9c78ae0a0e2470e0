//! Codes of the errors that a user can cause: `S0101`. The code leads from a message to what the book says about it
//! (`docs/src/errors.md`, which `satin explain` prints).
//!
//! The only part of the crate that knows the errors of all layers. What prints errors for people asks it; what makes errors does
//! not. A code is never given to another error, also when its own is gone.

use std::{error::Error, fmt};

use crate::{
    config::ConfigError,
    net::{
        CredentialError, NetError, discovery::DiscoveryError, observer::ObserverError,
        settings::SettingsError, store_server::StoreServerError,
    },
    satin::BuildError,
    seen::WindowError,
    stable::{
        StableError,
        runs::{BeginError, FinishError},
    },
    worker::{NoMain, StartError},
};

/// The code of an error.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ErrorCode(&'static str);

impl ErrorCode {
    /// The code as text.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.0
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

/// A constant for each code, and all of them in [`ALL`].
macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal;)*) => {
        $($(#[$doc])* pub const $name: ErrorCode = ErrorCode($code);)*

        /// Every code, in order.
        pub const ALL: &[ErrorCode] = &[$($name),*];
    };
}

codes! {
    /// A setting or a flag has a value of the wrong form.
    WRONG_VALUE = "S0101";
    /// `satin.toml` cannot be read.
    UNREADABLE_FILE = "S0102";
    /// `satin.toml` is no TOML, or has keys that do not exist.
    WRONG_FILE = "S0103";
    /// A pool without a credential.
    NO_CREDENTIAL = "S0104";
    /// The program called a spawnable function before it became a node.
    NO_MAIN = "S0105";

    /// The credential file is not there.
    CREDENTIAL_MISSING = "S0201";
    /// The credential file cannot be read.
    CREDENTIAL_UNREADABLE = "S0202";
    /// The file is no credential.
    CREDENTIAL_MALFORMED = "S0203";
    /// There is a file where a new credential is to be written.
    CREDENTIAL_EXISTS = "S0204";
    /// A new credential cannot be written.
    CREDENTIAL_UNWRITABLE = "S0205";
    /// No home directory is known for the user's credential.
    NO_HOME = "S0206";
    /// The system gives no random numbers for a key.
    NO_KEY = "S0207";

    /// The address to listen on cannot be used.
    CANNOT_LISTEN = "S0301";
    /// No name server knows the pool's names.
    NO_ADDRESSES = "S0302";
    /// The file of addresses cannot be used.
    ADDRESS_FILE = "S0303";
    /// `slurm` outside of a Slurm job.
    NO_SLURM = "S0304";
    /// Slurm's list of hosts is not one.
    HOST_LIST = "S0305";
    /// `slurm` without a port.
    SLURM_PORT = "S0306";
    /// No route leads to the pool.
    NO_ROUTE = "S0307";
    /// The events file cannot be written.
    EVENTS_FILE = "S0308";
    /// No node of the pool lets this one in.
    NOT_LET_IN = "S0309";
    /// No pool was found in the time that was given for that.
    GAVE_UP = "S0310";
    /// All other nodes are gone, or about to go.
    POOL_LOST = "S0311";
    /// The network thread has ended without a reason.
    NETWORK_DIED = "S0312";
    /// The dashboard cannot listen where it is to.
    DASHBOARD = "S0313";
    /// The report or the trace cannot be written.
    REPORT_FILE = "S0314";

    /// The store failed.
    STORE_FAILED = "S0401";
    /// Another start resumes the run at the same moment.
    RESUME_RACE = "S0402";
    /// The run that is to be resumed is not there.
    NO_SUCH_RUN = "S0403";
    /// The run that is to be resumed has come to its end.
    RUN_FINISHED = "S0404";
    /// The run is one of another program, build or command line.
    RUN_DIFFERS = "S0405";
    /// The run was started again and again, and nothing came of it.
    NO_PROGRESS = "S0406";
    /// A run is over, and is still in the store.
    NOT_REMOVED = "S0407";
    /// The name of a run fits several, or is none.
    RUN_NAME = "S0408";
    /// The run that is to be removed may be going on.
    RUN_ALIVE = "S0409";
    /// There is no store where one is looked for.
    NO_STORE = "S0410";
    /// A flag is about a store, and none is given.
    STORE_NOT_GIVEN = "S0411";
    /// The address of a store's server cannot be used.
    STORE_LISTEN = "S0412";
    /// Another server keeps its files in the directory.
    STORE_LOCKED = "S0413";
    /// The directory of a store's server cannot be used.
    STORE_DIRECTORY = "S0414";

    /// No address space for workers.
    NO_ADDRESS_SPACE = "S0501";
    /// The system starts no worker with such a stack.
    NO_WORKER = "S0502";
    /// The system starts no thread, or gives no socket.
    NO_THREAD = "S0503";

    /// No node of a pool answers.
    NO_ANSWER = "S0601";
    /// A node was asked to leave, and stays.
    NODE_STAYS = "S0602";
    /// No node is master at the moment.
    NO_MASTER = "S0603";
    /// The master was lost before it had ended the pool.
    MASTER_LOST = "S0604";
    /// No node or site has that name, or several have it.
    NODE_NAME = "S0605";

    /// Cargo does not build the program.
    CANNOT_BUILD = "S0701";
    /// No program is given.
    NO_PROGRAM = "S0702";
    /// The program cannot be started.
    CANNOT_START = "S0703";
    /// `satin node` without a pool.
    NO_POOL = "S0704";
    /// A fault happens to what is not there.
    WRONG_FAULT = "S0705";
    /// Links between sites are emulated, and there is one site.
    ONE_SITE = "S0706";
    /// No error is known by that code.
    NO_SUCH_CODE = "S0707";
}

/// An error that is a text, and has a code.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct CodedError {
    code: ErrorCode,
    text: String,
}

impl CodedError {
    /// An error with that text.
    #[must_use]
    pub fn new(code: ErrorCode, text: impl fmt::Display) -> CodedError {
        CodedError {
            code,
            text: text.to_string(),
        }
    }
}

/// The code of an error, or of the first of its causes that has one.
#[must_use]
pub fn of(error: &(dyn Error + 'static)) -> Option<ErrorCode> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(code) = own(error) {
            return Some(code);
        }
        next = error.source();
    }
    None
}

/// The text of an error for people, with its code at the end.
#[must_use]
pub fn explained(error: &(dyn Error + 'static)) -> String {
    with_code(error, of(error))
}

/// A text for people, with that code at its end unless it has one already: the text of a node that fails has made a long way, and
/// got its code where it was made.
#[must_use]
pub fn with_code(text: impl fmt::Display, code: Option<ErrorCode>) -> String {
    let text = text.to_string();
    match code {
        Some(code) if !text.contains(HINT) => format!("{text} [{HINT}{code}]"),
        _ => text,
    }
}

/// What stands before a code in a message.
const HINT: &str = "satin explain ";

fn own(error: &(dyn Error + 'static)) -> Option<ErrorCode> {
    macro_rules! first_of {
        ($($kind:ty => $code:expr,)*) => {
            $(if let Some(error) = error.downcast_ref::<$kind>() { return $code(error); })*
        };
    }
    first_of! {
        CodedError => |error: &CodedError| Some(error.code),
        NoMain => |_: &NoMain| Some(NO_MAIN),
        BuildError => of_build,
        ConfigError => |error| Some(of_config(error)),
        SettingsError => |error| Some(of_settings(error)),
        NetError => of_net,
        CredentialError => |error| Some(of_credential(error)),
        DiscoveryError => |error| Some(of_discovery(error)),
        ObserverError => |error| Some(of_observer(error)),
        StartError => |error| Some(of_start(error)),
        BeginError => |error| Some(of_begin(error)),
        StoreServerError => |error| Some(of_store_server(error)),
        WindowError => of_window,
        FinishError => |_: &FinishError| Some(NOT_REMOVED),
        StableError => |_: &StableError| Some(STORE_FAILED),
    }
    None
}

fn of_build(error: &BuildError) -> Option<ErrorCode> {
    match error {
        BuildError::Workers(error) => Some(of_start(error)),
        BuildError::Config(error) => Some(of_config(error)),
        BuildError::Settings(error) => Some(of_settings(error)),
        BuildError::Network(error) => of_net(error),
        BuildError::Window(error) => of_window(error),
    }
}

#[cfg(feature = "dashboard")]
fn of_window(error: &WindowError) -> Option<ErrorCode> {
    match error {
        WindowError::Observer(error) => Some(of_observer(error)),
        WindowError::Dashboard(_) => Some(DASHBOARD),
        WindowError::File { .. } => Some(REPORT_FILE),
        WindowError::Thread(_) => None,
    }
}

#[cfg(not(feature = "dashboard"))]
fn of_window(error: &WindowError) -> Option<ErrorCode> {
    match *error {}
}

fn of_config(error: &ConfigError) -> ErrorCode {
    match error {
        ConfigError::Unreadable(_) => UNREADABLE_FILE,
        ConfigError::Toml(_) => WRONG_FILE,
        ConfigError::Value { .. } => WRONG_VALUE,
    }
}

fn of_settings(error: &SettingsError) -> ErrorCode {
    match error {
        SettingsError::Value { .. } => WRONG_VALUE,
        SettingsError::NoCredential => NO_CREDENTIAL,
        SettingsError::SlurmWithoutPort => SLURM_PORT,
    }
}

/// `None`: the text has its code.
fn of_net(error: &NetError) -> Option<ErrorCode> {
    match error {
        NetError::Credential(error) => Some(of_credential(error)),
        NetError::Discovery(error) => Some(of_discovery(error)),
        NetError::Listen { .. } => Some(CANNOT_LISTEN),
        NetError::Thread(_) => Some(NO_THREAD),
        NetError::Events { .. } => Some(EVENTS_FILE),
        NetError::Failed(_) => None,
    }
}

fn of_credential(error: &CredentialError) -> ErrorCode {
    match error {
        CredentialError::Missing(_) => CREDENTIAL_MISSING,
        CredentialError::Unreadable { .. } => CREDENTIAL_UNREADABLE,
        CredentialError::Malformed { .. } => CREDENTIAL_MALFORMED,
        CredentialError::Exists(_) => CREDENTIAL_EXISTS,
        CredentialError::Unwritable { .. } => CREDENTIAL_UNWRITABLE,
        CredentialError::NoHome => NO_HOME,
        CredentialError::Generation(_) => NO_KEY,
    }
}

fn of_discovery(error: &DiscoveryError) -> ErrorCode {
    match error {
        DiscoveryError::Names { .. } => NO_ADDRESSES,
        DiscoveryError::File { .. } => ADDRESS_FILE,
        DiscoveryError::NoSlurm => NO_SLURM,
        DiscoveryError::HostList { .. } => HOST_LIST,
        DiscoveryError::NoRoute { .. } => NO_ROUTE,
    }
}

fn of_observer(error: &ObserverError) -> ErrorCode {
    match error {
        ObserverError::Credential(error) => of_credential(error),
        ObserverError::Discovery(error) => of_discovery(error),
        ObserverError::Socket(_) => NO_THREAD,
        ObserverError::Nobody { .. } => NO_ANSWER,
        ObserverError::Stays { .. } => NODE_STAYS,
        ObserverError::NoMaster(_) => NO_MASTER,
        ObserverError::MasterLost(_) => MASTER_LOST,
    }
}

fn of_start(error: &StartError) -> ErrorCode {
    match error {
        StartError::Area(_) => NO_ADDRESS_SPACE,
        StartError::Thread { .. } => NO_WORKER,
    }
}

fn of_begin(error: &BeginError) -> ErrorCode {
    match error {
        BeginError::Race(_) => RESUME_RACE,
        BeginError::Missing { .. } => NO_SUCH_RUN,
        BeginError::Finished { .. } => RUN_FINISHED,
        BeginError::Different { .. } => RUN_DIFFERS,
        BeginError::NoProgress { .. } => NO_PROGRESS,
        BeginError::Store(_) => STORE_FAILED,
    }
}

fn of_store_server(error: &StoreServerError) -> ErrorCode {
    match error {
        StoreServerError::Listen { .. } => STORE_LISTEN,
        StoreServerError::Thread(_) => NO_THREAD,
        StoreServerError::Locked(_) => STORE_LOCKED,
        StoreServerError::Directory { .. } => STORE_DIRECTORY,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_in_order_and_of_one_form() {
        assert!(ALL.is_sorted_by(|a, b| a < b), "{ALL:?}");
        for code in ALL {
            let digits = code.0.strip_prefix('S').expect("S");
            assert!(digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_digit()));
        }
    }

    #[test]
    fn an_error_has_the_code_of_its_cause() {
        let missing = CredentialError::Missing("pool.pem".into());
        assert_eq!(of(&missing), Some(CREDENTIAL_MISSING));
        let build = BuildError::Network(NetError::Credential(missing));
        assert_eq!(of(&build), Some(CREDENTIAL_MISSING));
        assert_eq!(of(&NetError::Failed("no reason".into())), None);
    }

    #[test]
    fn a_text_gets_its_code_once() {
        let error = CodedError::new(NO_POOL, "no pool is given");
        let text = explained(&error);
        assert_eq!(text, "no pool is given [satin explain S0704]");
        assert_eq!(with_code(&text, Some(POOL_LOST)), text);
        assert_eq!(with_code("why", None), "why");
    }
}

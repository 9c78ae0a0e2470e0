//! Failures of S3, as texts that say what to do.

use std::{error::Error as _, fmt, io, time::Duration};

use object_store::Error;

use crate::stable::{StableError, StoreUrl};

/// The failure of a call.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server, or the way to it, has failed.
    Object(Error),
    /// No answer came within that time.
    Silent(Duration),
    /// The thread that calls the server is gone.
    ThreadDied,
    /// The server has overwritten what it was to leave alone.
    NotExclusive,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Object(error) => f.write_str(&cause(error)),
            Failure::Silent(time) => write!(f, "no answer came in {} s", time.as_secs()),
            Failure::ThreadDied => f.write_str("its thread has died"),
            Failure::NotExclusive => f.write_str(
                "this server overwrites objects that it is asked to leave alone (it does not know `If-None-Match`), so two \
                 starts could have the same run",
            ),
        }
    }
}

impl Failure {
    /// The server has understood the call, and refuses it for good.
    pub(super) fn is_refusal(&self) -> bool {
        use Error::{NotFound, NotImplemented, PermissionDenied, Unauthenticated};
        matches!(
            self,
            Failure::Object(
                NotFound { .. }
                    | NotImplemented { .. }
                    | PermissionDenied { .. }
                    | Unauthenticated { .. }
            )
        )
    }

    /// The next thing to do.
    fn remedy(&self) -> Option<Remedy> {
        let Failure::Object(error) = self else {
            return match self {
                Failure::Silent(_) => Some(Remedy::Endpoint),
                Failure::NotExclusive => Some(Remedy::AnotherServer),
                _ => None,
            };
        };
        let all = whole_text(error);
        let tells = |signs: &[&str]| signs.iter().any(|sign| all.contains(sign));
        // The server that has keys for machines of AWS: it is asked if no key is set.
        Some(
            if tells(&[
                "/latest/api/token",
                "/latest/meta-data",
                "MissingAccessKeyId",
            ]) {
                Remedy::SetKey
            } else if tells(KEY) {
                Remedy::OtherKey
            } else if tells(REGION) {
                Remedy::Region
            } else if tells(&["NoSuchBucket"]) {
                Remedy::Bucket
            } else {
                match error {
                    Error::PermissionDenied { .. } | Error::Unauthenticated { .. } => {
                        Remedy::OtherKey
                    }
                    Error::NotFound { .. } => Remedy::Bucket,
                    Error::NotImplemented { .. } => Remedy::AnotherServer,
                    _ => Remedy::Endpoint,
                }
            },
        )
    }
}

/// Signs that the key is wrong, has run out, or may not do that.
const KEY: &[&str] = &[
    "AccessDenied",
    "AccessKeyId",
    "ACCESS_KEY",
    "ExpiredToken",
    "InvalidToken",
    "SecretAccessKey",
    "SignatureDoesNotMatch",
    "status code: 401",
    "status code: 403",
];

/// Signs that the server of another region was asked.
const REGION: &[&str] = &[
    "PermanentRedirect",
    "AuthorizationHeaderMalformed",
    "incorrectly configured region",
    "IllegalLocationConstraint",
];

/// The things that people can do.
#[derive(Clone, Copy)]
enum Remedy {
    SetKey,
    OtherKey,
    Region,
    Bucket,
    Endpoint,
    AnotherServer,
}

/// The bucket and the server, for texts.
#[derive(Clone, Debug)]
pub(super) struct Reach {
    url: StoreUrl,
    /// The server's URL, unless it is that of AWS.
    endpoint: Option<String>,
}

impl Reach {
    pub(super) fn new(url: StoreUrl, endpoint: Option<String>) -> Reach {
        Reach { url, endpoint }
    }

    pub(super) fn io_error(&self, path: &str, error: io::Error) -> StableError {
        let url = &self.url;
        StableError::Failed {
            path: match path {
                "" => url.to_string(),
                path => format!("{url}/{path}"),
            },
            error,
        }
    }

    /// The failure, with what to do about it.
    pub(super) fn explain(&self, path: &str, failure: Failure) -> StableError {
        let mut text = failure.to_string();
        if let Some(remedy) = failure.remedy() {
            text = format!("{text}: {}", self.advice(remedy));
        }
        let kind = match &failure {
            Failure::Silent(_) => io::ErrorKind::TimedOut,
            Failure::Object(Error::PermissionDenied { .. } | Error::Unauthenticated { .. }) => {
                io::ErrorKind::PermissionDenied
            }
            _ => io::ErrorKind::Other,
        };
        self.io_error(path, io::Error::new(kind, text))
    }

    fn advice(&self, remedy: Remedy) -> String {
        let server = match &self.endpoint {
            Some(endpoint) => endpoint,
            None => "S3 of AWS",
        };
        match remedy {
            Remedy::SetKey => {
                "there is no key for S3: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY on every node (~/.aws is not read)"
                    .into()
            }
            Remedy::OtherKey => format!(
                "{server} refuses the key: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY to one that may list this bucket, and \
                 read, write and delete in it"
            ),
            Remedy::Region => "the bucket is in another region: set AWS_REGION to that".into(),
            Remedy::Bucket => format!(
                "{server} has no such bucket: make it, or correct the store's URL, AWS_ENDPOINT_URL or AWS_REGION"
            ),
            Remedy::Endpoint => format!(
                "{server} cannot be used from here: see to it that it is up and that AWS_ENDPOINT_URL and AWS_REGION name it"
            ),
            Remedy::AnotherServer => {
                "use S3 of AWS, a server of another make, a directory (file:PATH) or servers of Satin's (satin://HOST:PORT)".into()
            }
        }
    }
}

/// All that an error and its causes say, for those who look for signs in it.
fn whole_text(error: &Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text += "\n";
        text += &error.to_string();
        below = error.source();
    }
    text
}

/// What is at the bottom of an error: the message in the server's answer, or what the system says.
fn cause(error: &Error) -> String {
    let all = whole_text(error);
    let element = |name: &str| {
        let (_, rest) = all.split_once(&format!("<{name}>"))?;
        Some(rest.split_once("</")?.0)
    };
    match (element("Code"), element("Message")) {
        (Some(code), Some(message)) => format!("{code}: {message}"),
        (Some(code), None) => code.into(),
        _ => all.lines().last().unwrap_or(&all).into(),
    }
}

//! The pool's credential: one key and its certificate, in one file that all nodes hold.
//!
//! The two sides of every connection prove that they have the key, and accept exactly that certificate. There is no
//! certificate authority, no name and no date to get wrong: a node that has the file is in, all others are out.

use std::{
    fmt, fs,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use quinn::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error, ServerConfig,
    SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls13_signature},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::danger::{ClientCertVerified, ClientCertVerifier},
};

/// The protocol inside TLS: another protocol, or another version of this protocol, does not get past the handshake.
pub const ALPN: &[u8] = b"satin/1";

/// The protocol of store servers, by the same credential: a node that calls a store, or the other way round, does not get past
/// the handshake.
pub const STORE_ALPN: &[u8] = b"satin-store/1";

/// The pool's credential: a certificate and its key.
pub struct Credential {
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.fingerprint())
    }
}

/// Reasons why there is no credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// The file is not there.
    #[error(
        "the credential {} does not exist; `satin keygen {}` writes a new one, and all nodes of a pool need a copy of the same file", .0.display(), .0.display()
    )]
    Missing(PathBuf),
    /// The file cannot be read.
    #[error("the credential {} cannot be read: {source}; it must be readable for the user of this process", path.display())]
    Unreadable {
        /// The credential file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a credential.
    #[error("{} is no credential: {reason}; `satin keygen FILE` writes one", path.display())]
    Malformed {
        /// The credential file.
        path: PathBuf,
        /// The fault in its text.
        reason: String,
    },
    /// A file exists at the place where a new credential is to be written. Nothing was written.
    #[error("{} exists already, and a credential is never overwritten; remove it or choose another name", .0.display())]
    Exists(PathBuf),
    /// A new credential could not be written. Nothing was left behind.
    #[error("cannot write the credential {}: {source}", path.display())]
    Unwritable {
        /// The credential file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// It is not known where the credential of this user is kept.
    #[error(
        "no home directory is known in which the credential of your stores could be kept; give one with `--credential FILE` (or \
         SATIN_CREDENTIAL), as `satin keygen FILE` writes it"
    )]
    NoHome,
    /// No key could be made.
    #[error("cannot make a key: {0}")]
    Generation(String),
}

impl Credential {
    /// Makes a new Ed25519 key and its certificate, as the text of a credential file.
    ///
    /// # Errors
    /// If the system has no randomness.
    pub fn generate() -> Result<String, CredentialError> {
        let generate = || -> Result<String, rcgen::Error> {
            let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519)?;
            let mut params = rcgen::CertificateParams::new(vec!["satin".to_owned()])?;
            params
                .distinguished_name
                .push(rcgen::DnType::CommonName, "a satin pool");
            let certificate = params.self_signed(&key)?;
            Ok(key.serialize_pem() + &certificate.pem())
        };
        generate().map_err(|error| CredentialError::Generation(error.to_string()))
    }

    /// Writes a new credential to `path`, readable for this user only.
    ///
    /// # Errors
    /// If there is something at `path`, or it cannot be written: nothing is overwritten or left behind then.
    pub fn write_new(path: &Path) -> Result<(), CredentialError> {
        let text = Credential::generate()?;
        let mut options = fs::OpenOptions::new();
        options.write(true).create_new(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let unwritable = |source: io::Error| match source.kind() {
            io::ErrorKind::AlreadyExists => CredentialError::Exists(path.into()),
            _ => CredentialError::Unwritable {
                path: path.into(),
                source,
            },
        };
        let mut file = options.open(path).map_err(unwritable)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.sync_all())
            .map_err(|source| {
                let _ = fs::remove_file(path);
                unwritable(source)
            })
    }

    /// Reads a credential file. One that others can read is used, with a warning.
    ///
    /// # Errors
    /// If it is missing, unreadable, or no credential.
    pub fn load(path: &Path) -> Result<Credential, CredentialError> {
        let unreadable = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound => CredentialError::Missing(path.into()),
            _ => CredentialError::Unreadable {
                path: path.into(),
                source,
            },
        };
        let text = fs::read(path).map_err(unreadable)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let metadata = fs::metadata(path).map_err(unreadable)?;
            let mode = metadata.mode();
            // A file of another user that a group may read was given to that group on purpose: so secrets come into containers.
            #[cfg(target_os = "linux")]
            let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
            #[cfg(not(target_os = "linux"))]
            let is_own = true;
            if mode & 0o007 != 0 || (is_own && mode & 0o070 != 0) {
                tracing::warn!(
                    "other users can read the credential {0} (mode {1:o}), and a user who can read it can join the pool; \
                     `chmod 600 {0}` makes it private",
                    path.display(),
                    mode & 0o777
                );
            }
        }
        Credential::parse(&text).map_err(|reason| CredentialError::Malformed {
            path: path.into(),
            reason,
        })
    }

    /// Reads the text of a credential file: a private key and its certificate, in any order.
    ///
    /// # Errors
    /// The text is no credential; the error says why.
    pub fn parse(text: &[u8]) -> Result<Credential, String> {
        let missing = |what: &str, error: pem::Error| match error {
            pem::Error::NoItemsFound => format!("it contains no {what}"),
            error => format!("its {what} cannot be read ({error})"),
        };
        let key =
            PrivateKeyDer::from_pem_slice(text).map_err(|error| missing("private key", error))?;
        let certificates: Vec<_> = CertificateDer::pem_slice_iter(text)
            .collect::<Result<_, _>>()
            .map_err(|error| missing("certificate", error))?;
        let [certificate] = <[_; 1]>::try_from(certificates)
            .map_err(|found| format!("it contains {} certificates instead of one", found.len()))?;
        let credential = Credential { certificate, key };
        // Does the key belong to the certificate?
        match credential.server_tls(ALPN) {
            Ok(_) => Ok(credential),
            Err(error) => Err(error.to_string()),
        }
    }

    /// The certificate's BLAKE3 hash, its first half in hexadecimal digits: to compare two files by eye, or by log. The
    /// fingerprint tells nothing about the key.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let hash = blake3::hash(&self.certificate).to_hex();
        hash[..32].to_owned()
    }

    /// The private key, in DER: what those who may join know, and nobody else does. The files of a store are authenticated by
    /// it, and sealed. It never leaves the process.
    #[must_use]
    pub fn secret(&self) -> &[u8] {
        self.key.secret_der()
    }

    fn verifier(&self) -> (Arc<CryptoProvider>, Arc<Exactly>) {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let verifier = Exactly {
            certificate: self.certificate.clone(),
            algorithms: provider.signature_verification_algorithms,
        };
        (provider, Arc::new(verifier))
    }

    fn server_tls(&self, alpn: &[u8]) -> Result<ServerConfig, Error> {
        let (provider, verifier) = self.verifier();
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_client_cert_verifier(verifier)
            .with_single_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        config.alpn_protocols = vec![alpn.to_vec()];
        config.send_tls13_tickets = 0;
        Ok(config)
    }

    fn client_tls(&self, alpn: &[u8]) -> Result<ClientConfig, Error> {
        let (provider, verifier) = self.verifier();
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_client_auth_cert(vec![self.certificate.clone()], self.key.clone_key())?;
        config.alpn_protocols = vec![alpn.to_vec()];
        config.resumption = rustls::client::Resumption::disabled();
        Ok(config)
    }

    /// TLS settings of a node for accepting connections.
    ///
    /// # Panics
    /// Never: the credential has been looked at when it was read.
    #[must_use]
    pub fn server(&self) -> Arc<QuicServerConfig> {
        self.server_for(ALPN)
    }

    /// TLS settings for accepting connections with that protocol inside.
    ///
    /// # Panics
    /// Never: the credential has been looked at when it was read.
    #[must_use]
    pub fn server_for(&self, alpn: &[u8]) -> Arc<QuicServerConfig> {
        let tls = (self.server_tls(alpn)).expect("the credential has been checked");
        Arc::new(
            tls.try_into()
                .expect("ring has QUIC's initial cipher suite"),
        )
    }

    /// TLS settings of a node for dialling.
    ///
    /// # Panics
    /// Never: the credential has been looked at when it was read.
    #[must_use]
    pub fn client(&self) -> Arc<QuicClientConfig> {
        self.client_for(ALPN)
    }

    /// TLS settings for dialling with that protocol inside.
    ///
    /// # Panics
    /// Never: the credential has been looked at when it was read.
    #[must_use]
    pub fn client_for(&self, alpn: &[u8]) -> Arc<QuicClientConfig> {
        let tls = (self.client_tls(alpn)).expect("the credential has been checked");
        Arc::new(
            tls.try_into()
                .expect("ring has QUIC's initial cipher suite"),
        )
    }
}

/// Accepts one certificate, from a peer that proves in the handshake that it has the key.
#[derive(Debug)]
struct Exactly {
    certificate: CertificateDer<'static>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl Exactly {
    fn check(
        &self,
        shown: &CertificateDer<'_>,
        others: &[CertificateDer<'_>],
    ) -> Result<(), Error> {
        // The certificate is no secret, as every handshake shows it. So the comparison need not run in constant time.
        if shown.as_ref() == self.certificate.as_ref() && others.is_empty() {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }
}

fn never_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(Error::General("TLS 1.2 is not spoken here".into()))
}

impl ServerCertVerifier for Exactly {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.check(end_entity, intermediates)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        never_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl ClientCertVerifier for Exactly {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.check(end_entity, intermediates)?;
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        never_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("satin-key-{}-{name}", std::process::id()));
        let _ = fs::remove_file(&path);
        path
    }

    #[test]
    fn a_credential_is_written_once_and_read_again() {
        let path = scratch("once");
        Credential::write_new(&path).expect("written");
        let first = Credential::load(&path).expect("read").fingerprint();
        let again = Credential::write_new(&path).expect_err("it is there");
        assert!(again.to_string().contains("never overwritten"), "{again}");
        assert_eq!(Credential::load(&path).expect("read").fingerprint(), first);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::metadata(&path).expect("there").permissions().mode();
            assert_eq!(mode & 0o777, 0o600);
        }
        fs::remove_file(&path).expect("removed");
    }

    #[test]
    fn errors_say_what_is_wrong_and_what_to_do() {
        let path = scratch("errors");
        let error = |text: Option<&[u8]>| {
            if let Some(text) = text {
                fs::write(&path, text).expect("written");
            }
            Credential::load(&path)
                .expect_err("no credential")
                .to_string()
        };
        assert!(error(None).contains("does not exist; `satin keygen"));
        assert!(error(Some(b"")).contains("no private key"));
        assert!(
            error(Some(
                b"-----BEGIN PRIVATE KEY-----\n*\n-----END PRIVATE KEY-----\n"
            ))
            .contains("cannot be read")
        );
        let (one, other) = (
            Credential::generate().expect("a key"),
            Credential::generate().expect("a key"),
        );
        let cut = one.find("-----BEGIN CERT").expect("a certificate");
        assert!(error(Some(&one.as_bytes()[..cut])).contains("0 certificates"));
        assert!(error(Some(format!("{one}{other}").as_bytes())).contains("2 certificates"));
        // The key of one with the certificate of the other.
        let mixed = format!(
            "{}{}",
            &one[..cut],
            &other[other.find("-----BEGIN CERT").expect("one")..]
        );
        assert!(error(Some(mixed.as_bytes())).contains("no credential"));
        fs::remove_file(&path).expect("removed");
        let directory = Credential::load(&std::env::temp_dir()).expect_err("a directory");
        assert!(
            directory.to_string().contains("cannot be read"),
            "{directory}"
        );
    }

    #[test]
    fn every_credential_is_another() {
        let print = || {
            let text = Credential::generate().expect("a key");
            Credential::parse(text.as_bytes())
                .expect("a credential")
                .fingerprint()
        };
        assert_ne!(print(), print());
    }
}

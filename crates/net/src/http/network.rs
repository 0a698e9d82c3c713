//! The access to the network: the proxy and the CA certificates, from the variables that other programs also use, or else
//! from the config.

use nanobot_base::error::{Exit, fail};
use nanobot_base::shell_quote::quote;
use nanobot_os::env::{Env, NO_PROXY_VARIABLES, PROXY_VARIABLES};
use nanobot_os::secret::{LazySecret, Secret};
use rustls_native_certs::{load_certs_from_paths, load_native_certs};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use ureq::Proxy;
use ureq::tls::{Certificate, RootCerts};

/// Paths of the system's root certificates. If none exists, the compiled-in ones are used.
const CERTIFICATE_PATHS: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
];

/// The values of the config. Each applies if its variable is not set.
#[derive(Clone, Debug, Default)]
pub struct NetworkDefaults {
    pub proxy: Option<LazySecret>,
    /// Hosts that are reached without the proxy, in the syntax of `NO_PROXY`.
    pub no_proxy: Vec<String>,
    /// A file of CA certificates in PEM format.
    pub ca_file: Option<PathBuf>,
}

/// The proxy and the CA certificates of a run.
#[derive(Clone, Debug, Default)]
pub struct Network {
    proxy: Option<Proxy>,
    certificates: CertificateSource,
    /// Only loopback addresses may be reached.
    is_offline: bool,
}

/// The source of the CA certificates.
#[derive(Clone, Debug, Default)]
enum CertificateSource {
    /// The certificates of the system, or else the compiled-in ones.
    #[default]
    System,
    /// A file and directories that the variables or the config name.
    Named {
        /// The variable or the key, for messages.
        setting: &'static str,
        file: Option<PathBuf>,
        directories: Vec<PathBuf>,
    },
}

/// The reason that no CA certificate can be read from the named place.
pub(super) struct CertificateProblem {
    pub(super) cause: String,
    pub(super) hint: String,
}

impl Network {
    /// Resolves the variables and `defaults`.
    ///
    /// # Errors
    /// Status 78 if the proxy of `defaults` is not a valid URL. An invalid one in a variable is ignored, as other
    /// programs do.
    pub fn new(env: &Env, defaults: NetworkDefaults) -> anyhow::Result<Self> {
        let NetworkDefaults { proxy, no_proxy, ca_file } = defaults;
        let variable = |names: &[&str]| names.iter().find_map(|name| env.get(name));
        let no_proxy: Vec<String> = match variable(NO_PROXY_VARIABLES) {
            Some(list) => list.split(',').map(|host| host.trim().to_owned()).collect(),
            None => no_proxy,
        };
        let from_env = PROXY_VARIABLES
            .iter()
            .filter_map(|name| env.get(name))
            .find_map(|url| parse_proxy(url, &no_proxy));
        let proxy = match (from_env, proxy) {
            (Some(proxy), _) => Some(proxy),
            (None, Some(url)) => Some(configured_proxy(url.resolve()?, &no_proxy, "`http.proxy`")?),
            (None, None) => None,
        };
        let file = env.path("SSL_CERT_FILE");
        let directories: Vec<PathBuf> =
            env.get("SSL_CERT_DIR").into_iter().flat_map(std::env::split_paths).collect();
        let certificates = match (file, ca_file) {
            (Some(file), _) => {
                CertificateSource::Named { setting: "SSL_CERT_FILE", file: Some(file), directories }
            }
            (None, _) if !directories.is_empty() => {
                CertificateSource::Named { setting: "SSL_CERT_DIR", file: None, directories }
            }
            (None, Some(file)) => {
                CertificateSource::Named { setting: "http.caFile", file: Some(file), directories }
            }
            (None, None) => CertificateSource::System,
        };
        Ok(Self { proxy, certificates, is_offline: false })
    }

    /// The same network, restricted to loopback addresses, as with `--offline`.
    pub fn offline(self) -> Self {
        Self { is_offline: true, ..self }
    }

    /// True if only loopback addresses may be reached.
    pub(super) fn is_offline(&self) -> bool {
        self.is_offline
    }

    /// The proxy, if there is one.
    pub(super) fn proxy(&self) -> Option<&Proxy> {
        self.proxy.as_ref()
    }

    /// The source of the CA certificates, for messages.
    pub(super) fn certificate_source(&self) -> String {
        match &self.certificates {
            CertificateSource::Named { file, directories, .. } => {
                let paths = file.iter().chain(directories);
                paths.map(|path| format!("`{}`", path.display())).collect::<Vec<_>>().join(", ")
            }
            CertificateSource::System => {
                system_path().map_or_else(|| "this program".into(), |path| format!("`{path}`"))
            }
        }
    }

    /// The root certificates. Those of the system are only read for `tls`.
    pub(super) fn root_certificates(&self, tls: bool) -> RootCerts {
        let results = match &self.certificates {
            CertificateSource::System if !tls || system_path().is_none() => {
                return RootCerts::WebPki;
            }
            CertificateSource::System => vec![load_native_certs()],
            CertificateSource::Named { file, directories, .. } => {
                let file = file.iter().map(|file| load_certs_from_paths(Some(file), None));
                let directories = directories.iter();
                file.chain(directories.map(|path| load_certs_from_paths(None, Some(path))))
                    .collect()
            }
        };
        for error in results.iter().flat_map(|result| &result.errors) {
            log::warn!(target: "http", "{error}");
        }
        let certificates = results.iter().flat_map(|result| &result.certs);
        let certificates =
            certificates.map(|certificate| Certificate::from_der(certificate).to_owned());
        RootCerts::Specific(Arc::new(certificates.collect()))
    }

    /// The reason that the named file and directories have no CA certificate. `None` if they have one, or if none are named.
    pub(super) fn certificate_problem(&self) -> Option<CertificateProblem> {
        let CertificateSource::Named { setting, file, directories } = &self.certificates else {
            return None;
        };
        let RootCerts::Specific(certificates) = self.root_certificates(true) else {
            return None;
        };
        if !certificates.is_empty() {
            return None;
        }
        let path = file.as_ref().or(directories.first())?;
        let fault = CertificateFault::find(path);
        let path = path.display();
        let hint = match fault {
            CertificateFault::Der => {
                let file = quote(&path.to_string());
                format!(
                    "`openssl x509 -inform der -in {file} -out ca.pem`, and `ca.pem` as `{setting}`"
                )
            }
            _ => format!(
                "a file of CA certificates in PEM format as `{setting}`, or unset it for those of the system"
            ),
        };
        let cause = format!("no server can be verified: `{setting}` is `{path}`, which {fault}");
        Some(CertificateProblem { cause, hint })
    }
}

/// The reason that a file or a directory has no certificate.
#[derive(Debug, thiserror::Error)]
enum CertificateFault {
    #[error("does not exist")]
    Missing,
    #[error("cannot be read: {0}")]
    Unreadable(io::Error),
    #[error("is empty")]
    Empty,
    #[error("is in DER format instead of PEM")]
    Der,
    #[error("has no certificate in PEM format")]
    NoCertificate,
}

impl CertificateFault {
    fn find(path: &Path) -> Self {
        let mut start = [0; 2];
        match File::open(path).and_then(|mut file| file.read(&mut start)) {
            Err(error) if error.kind() == ErrorKind::NotFound => Self::Missing,
            Err(error) if error.kind() == ErrorKind::IsADirectory => Self::NoCertificate,
            Err(error) => Self::Unreadable(error),
            Ok(0) => Self::Empty,
            // A sequence of more than 255 bytes (X.690, section 8.1.3).
            Ok(_) if start == [0x30, 0x82] => Self::Der,
            Ok(_) => Self::NoCertificate,
        }
    }
}

/// Parses the proxy URL in `setting`.
///
/// # Errors
/// Status 78 if it is not valid. The URL can contain a password, so it is not shown.
pub(super) fn configured_proxy(
    url: &Secret,
    no_proxy: &[String],
    setting: &str,
) -> anyhow::Result<Proxy> {
    parse_proxy(url.expose(), no_proxy)
        .ok_or_else(|| fail(Exit::Config, format!("{setting} is not a valid proxy URL")))
}

/// Parses a proxy URL; `None` if it is not valid. Each name in `no_proxy` stands for all hosts of its domain, with or without a dot
/// before it, as in curl.
fn parse_proxy(url: &str, no_proxy: &[String]) -> Option<Proxy> {
    let proxy = Proxy::new(url).ok()?;
    if no_proxy.is_empty() {
        return Some(proxy);
    }
    let mut builder = Proxy::builder(proxy.protocol())
        .host(proxy.host())
        .port(proxy.port())
        .resolve_target(proxy.resolve_target());
    for name in no_proxy {
        let domain = name.trim_start_matches('.');
        if domain.contains('*') {
            builder = builder.no_proxy(name);
        } else if !domain.is_empty() {
            builder = builder.no_proxy(domain).no_proxy(&format!(".{domain}"));
        }
    }
    if let Some(user) = proxy.username() {
        builder = builder.username(user);
    }
    if let Some(password) = proxy.password() {
        builder = builder.password(password);
    }
    builder.build().ok()
}

/// The path of the system's root certificates, if there are any.
fn system_path() -> Option<&'static str> {
    let exists = |path: &&&str| Path::new(path).exists();
    CERTIFICATE_PATHS.iter().find(exists).copied()
}

#[cfg(test)]
mod tests {
    use super::{Network, NetworkDefaults};
    use nanobot_os::env::Env;
    use nanobot_os::secret::LazySecret;

    #[test]
    fn a_variable_overrides_the_config() {
        let check = |variables: &[(&str, &str)], host: Option<&str>, direct: &str| {
            let env: Env = variables.iter().copied().collect();
            let defaults = NetworkDefaults {
                proxy: Some(LazySecret::new("http://user:p%40ss@config:3128")),
                no_proxy: vec![".config.example".into()],
                ca_file: None,
            };
            let network = Network::new(&env, defaults).unwrap();
            assert_eq!(network.proxy().map(ureq::Proxy::host), host);
            let direct = format!("https://{direct}/").parse().unwrap();
            let proxy = network.proxy().unwrap();
            assert!(proxy.is_no_proxy(&direct));
            for other in ["other.example", "otherb.example"] {
                assert!(!proxy.is_no_proxy(&format!("https://{other}/").parse().unwrap()));
            }
        };
        check(&[], Some("config"), "a.config.example");
        let variable = ("HTTPS_PROXY", "http://variable:1");
        check(&[variable], Some("variable"), "a.config.example");
        let list = ("no_proxy", "b.example, .c.example");
        check(&[list], Some("config"), "a.c.example");
        check(&[variable, list], Some("variable"), "b.example");
        // A name stands for its domain.
        check(&[list], Some("config"), "a.b.example");
        check(&[list], Some("config"), "c.example");
        check(&[("NO_PROXY", "*.b.example,")], Some("config"), "a.b.example");
        // As other programs do, an invalid variable is ignored.
        check(&[("ALL_PROXY", "::")], Some("config"), "a.config.example");
    }

    #[test]
    fn the_password_is_kept_and_an_invalid_url_is_rejected() {
        let network = |url: &str| {
            let defaults = NetworkDefaults {
                proxy: Some(LazySecret::new(url)),
                no_proxy: vec!["a".into()],
                ca_file: None,
            };
            Network::new(&Env::default(), defaults)
        };
        let proxy = network("http://user:p%40ss@host:3128").unwrap();
        assert_eq!(proxy.proxy().unwrap().password(), Some("p@ss"));
        let error = network("http://user:word@").unwrap_err().to_string();
        assert_eq!(error, "`http.proxy` is not a valid proxy URL");
    }
}

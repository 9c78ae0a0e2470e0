//! Who may look, and who may change something.
//!
//! On a loopback address everybody on this machine may look. There the danger is another page in the same browser: it may lead a name of its own
//! to this address, so names other than `localhost` are refused, and it may send requests, so those that change something need a header that
//! browsers do not let other pages send. On any other address a token is demanded: 128 random bits, new at each start.

use std::net::{IpAddr, SocketAddr};

use axum::{
    extract::{Request, State},
    http::{HeaderMap, Method, StatusCode, header},
    middleware::Next,
    response::{IntoResponse, Response},
};

use super::server::Shared;

/// The header of requests that change something.
pub(super) const CHANGES: &str = "x-satin";

/// Which requests are let in.
pub(super) struct Access {
    /// `None`: this address cannot be reached from elsewhere.
    token: Option<AccessToken>,
}

struct AccessToken {
    text: String,
    /// Cookies are those of a host, with all its ports: the name tells dashboards of one machine apart.
    cookie: String,
}

/// What becomes of a request.
enum Verdict {
    Enter,
    /// The token was in the URL of the page: from here on it is in a cookie.
    KeepToken(String),
    Refused(StatusCode, &'static str),
}

impl Access {
    pub(super) fn to(addr: SocketAddr) -> Access {
        let token = (!addr.ip().is_loopback()).then(|| AccessToken {
            text: format!("{:032x}", rand::random::<u128>()),
            cookie: format!("satin_{}", addr.port()),
        });
        Access { token }
    }

    /// What stands behind the address in the URL for people.
    pub(super) fn query(&self) -> String {
        let token = self.token.as_ref();
        token.map_or(String::new(), |token| format!("?token={}", token.text))
    }

    fn judge(&self, request: &Request) -> Verdict {
        let headers = request.headers();
        if request.uri().path() == "/healthz" {
            return Verdict::Enter;
        }
        let verdict = match &self.token {
            Some(token) => token.judge(request),
            None if names_this_machine(headers) => Verdict::Enter,
            None => Verdict::Refused(
                StatusCode::FORBIDDEN,
                "this page is for this machine alone: open it as http://localhost:PORT/ (from another machine by `ssh -L`)",
            ),
        };
        match verdict {
            Verdict::Enter if changes_something(request) && !is_own_page(headers) => {
                Verdict::Refused(
                    StatusCode::FORBIDDEN,
                    "requests that change something need the header `x-satin: 1`, and come from this page or from no page",
                )
            }
            verdict => verdict,
        }
    }
}

impl AccessToken {
    fn judge(&self, request: &Request) -> Verdict {
        let headers = request.headers();
        let bearer = text(headers, header::AUTHORIZATION.as_str());
        let bearer = bearer.and_then(|text| text.strip_prefix("Bearer "));
        if bearer.is_some_and(|given| self.is(given)) || self.is_in_cookie(headers) {
            return Verdict::Enter;
        }
        let query = request.uri().query().unwrap_or_default();
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        if pairs.any(|(name, given)| name == "token" && self.is(given)) {
            return match request.uri().path() {
                "/" => Verdict::KeepToken(format!(
                    "{}={}; Path=/; HttpOnly; SameSite=Strict",
                    self.cookie, self.text
                )),
                _ => Verdict::Enter,
            };
        }
        Verdict::Refused(
            StatusCode::UNAUTHORIZED,
            "a token is needed: open the URL that the node printed when it started, with `?token=..`, or send the header `Authorization: Bearer TOKEN`",
        )
    }

    fn is_in_cookie(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(header::COOKIE).iter();
        let cookies = cookies.filter_map(|cookies| cookies.to_str().ok());
        let mut pairs = cookies
            .flat_map(|cookies| cookies.split(';'))
            .filter_map(|pair| pair.trim().split_once('='));
        pairs.any(|(name, given)| name == self.cookie && self.is(given))
    }

    /// Compares hashes: the time that this takes says nothing about the token.
    fn is(&self, given: &str) -> bool {
        blake3::hash(given.as_bytes()) == blake3::hash(self.text.as_bytes())
    }
}

/// Lets requests in, or answers why not.
pub(super) async fn check(
    State(shared): State<std::sync::Arc<Shared>>,
    request: Request,
    next: Next,
) -> Response {
    match shared.access.judge(&request) {
        Verdict::Enter => next.run(request).await,
        Verdict::KeepToken(cookie) => {
            let headers = [(header::SET_COOKIE, cookie), (header::LOCATION, "/".into())];
            (StatusCode::SEE_OTHER, headers).into_response()
        }
        Verdict::Refused(status, why) => (status, format!("{why}\n")).into_response(),
    }
}

fn text<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}

fn changes_something(request: &Request) -> bool {
    !matches!(*request.method(), Method::GET | Method::HEAD)
}

/// An address or `localhost`: no other machine's name service can say what these mean.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let host = text(headers, header::HOST.as_str()).unwrap_or_default();
    let host = match host.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => host,
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<IpAddr>().is_ok()
}

/// Does the request come from this page, or from no page at all?
fn is_own_page(headers: &HeaderMap) -> bool {
    let origin = text(headers, header::ORIGIN.as_str());
    let is_own = origin.is_none_or(|origin| {
        let from = origin.split_once("://").map(|(_, host)| host);
        from.is_some() && from == text(headers, header::HOST.as_str())
    });
    is_own && headers.contains_key(CHANGES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_and_localhost_name_this_machine() {
        let names = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::HOST, host.parse().expect("a header"));
            names_this_machine(&headers)
        };
        for own in ["localhost:8787", "127.0.0.1:1", "[::1]:80", "LOCALHOST"] {
            assert!(names(own), "{own}");
        }
        for other in ["evil.example:8787", "localhost.evil.example", "", ":80"] {
            assert!(!names(other), "{other}");
        }
    }
}

//! The notice that tells a node to leave (`SATIN_DRAIN_WHEN`): a file, or a URL such as a cloud's notice that this
//! machine is about to be taken away.

use std::{path::Path, rc::Rc, time::Duration};

use tokio::time::{sleep, timeout};

use super::{driver::Net, settings::DrainWhen};

/// Between two looks at a file, and two requests.
const LOOK: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));

/// A server that takes longer says nothing.
const PATIENCE: Duration = Duration::from_secs(3);

/// Looks for the notice again and again, until it is there; then the node is asked to leave. If it cannot, because it is
/// master and no node would be left, it is asked again as long as the notice is there.
pub(super) async fn watch(net: Rc<Net>, when: DrainWhen) {
    let pause = match &when {
        DrainWhen::File(_) => LOOK.0,
        DrainWhen::Http(_) => LOOK.1,
    };
    let mut warned = false;
    loop {
        if is_there(&when).await {
            if net.turn(|driver, now| driver.drain(now, None)) {
                tracing::info!(?when, "this node is asked to leave");
                return;
            }
            if !std::mem::replace(&mut warned, true) {
                tracing::warn!(
                    ?when,
                    "this node is asked to leave, but no other node is there to take over its work: it stays until another node joins"
                );
            }
        }
        if net.driver.borrow().is_over() {
            return;
        }
        sleep(pause).await;
    }
}

async fn is_there(when: &DrainWhen) -> bool {
    let look: Box<dyn FnOnce() -> bool + Send> = match when.clone() {
        DrainWhen::File(path) => Box::new(move || Path::exists(&path)),
        DrainWhen::Http(url) => Box::new(move || answers(&url)),
    };
    // A file may lie on a machine that does not answer.
    let asked = timeout(PATIENCE * 2, tokio::task::spawn_blocking(look)).await;
    matches!(asked, Ok(Ok(true)))
}

/// Whether it answers with status 200.
fn answers(url: &str) -> bool {
    let answer = minreq::get(url)
        .with_timeout(PATIENCE.as_secs())
        .with_max_redirects(0)
        .send_lazy();
    match answer {
        Ok(answer) => answer.status_code == 200,
        Err(error) => {
            tracing::debug!(url, "no notice: {error}");
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::TcpListener,
    };

    use super::*;

    /// A server that answers once with each of these.
    fn server(answers: &'static [&'static str]) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/notice", listener.local_addr().expect("bound"));
        std::thread::spawn(move || {
            for answer in answers {
                let (mut stream, _) = listener.accept().expect("a caller");
                let mut request = [0; 1024];
                let _ = stream.read(&mut request);
                let _ = stream.write_all(answer.as_bytes());
            }
        });
        url
    }

    #[test]
    fn only_200_is_a_notice() {
        let url = server(&[
            "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
            "nonsense\r\n\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
        ]);
        let seen: Vec<bool> = (0..4).map(|_| answers(&url)).collect();
        assert_eq!(seen, [false, false, false, true]);
        assert!(!answers(&url), "nobody is there any more");
    }
}

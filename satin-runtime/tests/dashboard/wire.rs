//! A wire between a browser and a server, which can be cut.

use std::{
    io::copy,
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

pub struct Wire {
    /// Where the browser connects to.
    pub addr: SocketAddr,
    ends: Arc<Ends>,
}

#[derive(Default)]
struct Ends {
    is_cut: AtomicBool,
    /// Both ends of each connection.
    open: Mutex<Vec<TcpStream>>,
}

impl Wire {
    pub fn to(server: SocketAddr) -> Wire {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let addr = listener.local_addr().expect("an address");
        let ends = Arc::new(Ends::default());
        let laid = Arc::clone(&ends);
        // Ends with the process, as its listener blocks.
        thread::spawn(move || {
            for browser in listener.incoming().flatten() {
                laid.connect(browser, server);
            }
        });
        Wire { addr, ends }
    }

    pub fn cut(&self) {
        self.ends.is_cut.store(true, Ordering::SeqCst);
        for end in self.ends.open.lock().expect("held by nobody").drain(..) {
            // Fails if it is closed already.
            let _ = end.shutdown(Shutdown::Both);
        }
    }

    pub fn mend(&self) {
        self.ends.is_cut.store(false, Ordering::SeqCst);
    }
}

impl Ends {
    /// A connection to a wire that is cut is closed at once.
    fn connect(&self, browser: TcpStream, server: SocketAddr) {
        let mut open = self.open.lock().expect("held by nobody");
        if self.is_cut.load(Ordering::SeqCst) {
            return;
        }
        let Ok(server) = TcpStream::connect(server) else {
            return;
        };
        for (from, to) in [(&browser, &server), (&server, &browser)] {
            let mut from = from.try_clone().expect("a second handle");
            let mut to = to.try_clone().expect("a second handle");
            thread::spawn(move || {
                let _ = copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
        }
        open.extend([browser, server]);
    }
}

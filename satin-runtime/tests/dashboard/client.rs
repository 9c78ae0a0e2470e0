//! A client of HTTP that adds nothing to what a test wants to send.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use satin_runtime::dashboard::Dashboard;

/// A server that does not answer for so long is broken.
const PATIENCE: Duration = Duration::from_secs(60);

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

/// The address of a dashboard on this machine.
pub fn addr(dashboard: &Dashboard) -> SocketAddr {
    let url = dashboard.url().strip_prefix("http://").expect("a URL");
    let (host, _) = url.split_once('/').expect("a path");
    let (_, port) = host.rsplit_once(':').expect("a port");
    SocketAddr::from(([127, 0, 0, 1], port.parse().expect("a number")))
}

/// Opens a connection, and sends a request with these lines of a head.
pub fn send(addr: SocketAddr, request: &str, head: &[&str], body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(addr).expect("connected");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let mut text = format!(
        "{request} HTTP/1.1\r\nConnection: close\r\nContent-Length: {}\r\n",
        body.len()
    );
    if !head.iter().any(|line| line.starts_with("Host:")) {
        text += &format!("Host: {addr}\r\n");
    }
    for line in head {
        text += &format!("{line}\r\n");
    }
    text += &format!("\r\n{body}");
    stream.write_all(text.as_bytes()).expect("sent");
    stream
}

pub fn ask(addr: SocketAddr, request: &str, head: &[&str], body: &str) -> Answer {
    let mut text = String::new();
    let mut stream = send(addr, request, head, body);
    stream.read_to_string(&mut text).expect("an answer");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head");
    let status = head.split(' ').nth(1).expect("a status");
    Answer {
        status: status.parse().expect("a number"),
        head: head.to_ascii_lowercase(),
        body: body.into(),
    }
}

pub fn get(addr: SocketAddr, path: &str) -> Answer {
    ask(addr, &format!("GET {path}"), &[], "")
}

/// Server-sent events: name and data of each.
pub struct Events(BufReader<TcpStream>);

impl Events {
    pub fn open(addr: SocketAddr) -> Events {
        Events(BufReader::new(send(addr, "GET /api/live", &[], "")))
    }
}

impl Iterator for Events {
    type Item = (String, String);

    fn next(&mut self) -> Option<(String, String)> {
        let (mut name, mut line) = (String::new(), String::new());
        loop {
            line.clear();
            if self.0.read_line(&mut line).expect("an event in time") == 0 {
                return None;
            }
            if let Some(event) = line.strip_prefix("event: ") {
                name = event.trim().into();
            } else if let Some(data) = line.strip_prefix("data: ") {
                return Some((name, data.trim().into()));
            }
        }
    }
}

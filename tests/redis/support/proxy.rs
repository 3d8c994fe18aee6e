//! A TCP proxy that injects faults into its connections, chosen by a test while they are open.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::server::Server;
use super::{LIMIT, lock, ports, until_some};

/// The treatment of the bytes that arrive next. The bytes of one read count as one request or
/// reply.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Mode {
    Pass,
    /// Each reply arrives later by this delay, however many are on their way.
    DelayAnswers(Duration),
    /// The first reply on each connection arrives later by this delay.
    DelayConnecting(Duration),
    /// Requests reach the server, answers are lost.
    SwallowAnswers,
    /// Replies are lost, and those that follow are not, as by a proxy between the two that loses them.
    LoseAnswers,
    /// Nothing reaches the server.
    SwallowRequests,
    /// A connection ends when its next request arrives, and the server does not see that request.
    CutBeforeRequest,
    /// A connection ends when its next answer arrives: the server has executed the request.
    CutBeforeAnswer,
    /// The server has executed the request, and the client gets this error instead of the answer.
    Answer(&'static str),
    /// Connections there are pass, new ones are refused.
    Refuse,
}

/// A connection that has lost bytes stays mute until it is cut, whatever the mode is later: TCP does not
/// lose some and deliver those that follow.
pub(crate) struct Proxy {
    port: u16,
    shared: Arc<Shared>,
    listening: Mutex<Option<Listening>>,
}

struct Listening {
    thread: JoinHandle<()>,
    ends: Arc<AtomicBool>,
}

struct Shared {
    state: Mutex<State>,
    connections: Mutex<Vec<Connection>>,
    accepted: AtomicUsize,
}

struct State {
    mode: Mode,
    once: bool,
    target: u16,
}

struct Connection {
    client: TcpStream,
    server: TcpStream,
    threads: [JoinHandle<()>; 3],
    /// Gone with the connection, which ends any delay.
    open: Sender<()>,
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Requests,
    Answers,
}

enum Verdict {
    Forward(Duration),
    Instead(&'static str),
    Swallow,
    Lose,
    Cut,
}

impl Proxy {
    pub(crate) fn to(server: &Server) -> Self {
        let state = State { mode: Mode::Pass, once: false, target: server.port() };
        let shared = Shared {
            state: Mutex::new(state),
            connections: Mutex::default(),
            accepted: AtomicUsize::new(0),
        };
        let shared = Arc::new(shared);
        // Another process may be quicker to take a port.
        let (port, listener) = until_some("the proxy gets a port", || {
            let port = ports::free();
            Some((port, bind(port)?))
        });
        let listening = Mutex::new(Some(Listening::start(listener, &shared)));
        Self { port, shared, listening }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(crate) fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).expect("the URL is one")
    }

    /// Holds for all connections and whatever arrives from now on.
    pub(crate) fn set(&self, mode: Mode) {
        self.change(mode, false);
    }

    /// The same until one connection has been affected: the others pass, and [`mode`](Self::mode)
    /// says so.
    pub(crate) fn set_once(&self, mode: Mode) {
        self.change(mode, true);
    }

    pub(crate) fn mode(&self) -> Mode {
        lock(&self.shared.state).mode
    }

    fn change(&self, mode: Mode, once: bool) {
        {
            let mut state = lock(&self.shared.state);
            (state.mode, state.once) = (mode, once);
        }
        let mut listening = lock(&self.listening);
        if mode == Mode::Refuse {
            self.hang_up(&mut listening);
        } else if listening.is_none() {
            let listener = until_some("the proxy gets its port again", || bind(self.port));
            *listening = Some(Listening::start(listener, &self.shared));
        }
    }

    /// New connections go to another server; [`cut`](Self::cut) makes them necessary.
    pub(crate) fn retarget(&self, server: &Server) {
        lock(&self.shared.state).target = server.port();
    }

    /// Ends all connections. On return nothing passes any more.
    pub(crate) fn cut(&self) {
        let connections = std::mem::take(&mut *lock(&self.shared.connections));
        connections.into_iter().for_each(Connection::cut);
    }

    /// Connections that have been accepted so far, open or not.
    pub(crate) fn accepted(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    fn hang_up(&self, listening: &mut Option<Listening>) {
        let Some(Listening { thread, ends }) = listening.take() else { return };
        ends.store(true, Ordering::SeqCst);
        // Wakes the thread up. If this fails, another connection has done it.
        let _ = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port));
        thread.join().expect("the listener does not panic");
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.hang_up(&mut lock(&self.listening));
        self.cut();
    }
}

fn bind(port: u16) -> Option<TcpListener> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
}

impl Listening {
    fn start(listener: TcpListener, shared: &Arc<Shared>) -> Self {
        let ends = Arc::new(AtomicBool::new(false));
        let thread = thread::spawn({
            let (shared, ends) = (Arc::clone(shared), Arc::clone(&ends));
            move || {
                for client in listener.incoming() {
                    if ends.load(Ordering::SeqCst) {
                        return;
                    }
                    // A client that has gone again, or a server that is not there: the connection ends.
                    let _ = client.and_then(|client| shared.open(client));
                }
            }
        });
        Self { thread, ends }
    }
}

impl Shared {
    fn open(self: &Arc<Self>, client: TcpStream) -> std::io::Result<()> {
        self.accepted.fetch_add(1, Ordering::SeqCst);
        let target = SocketAddr::from((Ipv4Addr::LOCALHOST, lock(&self.state).target));
        let server = TcpStream::connect_timeout(&target, LIMIT)?;
        client.set_nodelay(true)?;
        server.set_nodelay(true)?;
        let (open, closed) = mpsc::channel();
        let (late, due) = mpsc::channel();
        let requests = {
            let (shared, from, mut to) =
                (Arc::clone(self), client.try_clone()?, server.try_clone()?);
            move || {
                shared.pump(Side::Requests, &from, |_, bytes| to.write_all(bytes).is_ok());
                end(&from, &to);
            }
        };
        let answers = {
            let (shared, from) = (Arc::clone(self), server.try_clone()?);
            move || {
                shared.pump(Side::Answers, &from, |delay, bytes| {
                    late.send((Instant::now() + delay, bytes.to_vec())).is_ok()
                });
            }
        };
        let delivery = {
            let (from, to) = (server.try_clone()?, client.try_clone()?);
            move || {
                deliver(&due, &closed, &to);
                end(&from, &to);
            }
        };
        // Locked before anything passes, so that a cut finds each connection that is in use.
        let mut connections = lock(&self.connections);
        let threads = [thread::spawn(requests), thread::spawn(answers), thread::spawn(delivery)];
        connections.retain(|connection| !connection.threads.iter().all(JoinHandle::is_finished));
        connections.push(Connection { client, server, threads, open });
        Ok(())
    }

    /// Reads until an end or a cut.
    fn pump(
        &self,
        side: Side,
        mut from: &TcpStream,
        mut forward: impl FnMut(Duration, &[u8]) -> bool,
    ) {
        let mut bytes = [0; 16 * 1024];
        let mut lost = false;
        let mut is_first = true;
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if lost {
                continue;
            }
            match self.judge(side, std::mem::take(&mut is_first)) {
                Verdict::Forward(delay) if forward(delay, &bytes[..count]) => {}
                Verdict::Instead(error)
                    if forward(Duration::ZERO, format!("-{error}\r\n").as_bytes()) => {}
                Verdict::Swallow => lost = true,
                Verdict::Lose => {}
                Verdict::Forward(_) | Verdict::Instead(_) | Verdict::Cut => return,
            }
        }
    }

    fn judge(&self, side: Side, is_first: bool) -> Verdict {
        let mut state = lock(&self.state);
        let verdict = match (state.mode, side) {
            (Mode::DelayAnswers(delay), Side::Answers) => return Verdict::Forward(delay),
            (Mode::Answer(error), Side::Answers) => Verdict::Instead(error),
            (Mode::DelayConnecting(delay), Side::Answers) if is_first => {
                return Verdict::Forward(delay);
            }
            (Mode::LoseAnswers, Side::Answers) => Verdict::Lose,
            (Mode::SwallowRequests, Side::Requests) | (Mode::SwallowAnswers, Side::Answers) => {
                Verdict::Swallow
            }
            (Mode::CutBeforeRequest, Side::Requests) | (Mode::CutBeforeAnswer, Side::Answers) => {
                Verdict::Cut
            }
            _ => return Verdict::Forward(Duration::ZERO),
        };
        if state.once {
            (state.mode, state.once) = (Mode::Pass, false);
        }
        verdict
    }
}

/// A thread of its own, or a delay would also hold up the reading of the answers that follow.
fn deliver(due: &Receiver<(Instant, Vec<u8>)>, closed: &Receiver<()>, mut to: &TcpStream) {
    for (at, bytes) in due {
        let delay = at.saturating_duration_since(Instant::now());
        // Nothing is ever sent on `closed`: it ends.
        if closed.recv_timeout(delay) != Err(RecvTimeoutError::Timeout)
            || to.write_all(&bytes).is_err()
        {
            return;
        }
    }
}

fn end(one: &TcpStream, other: &TcpStream) {
    // They may have ended by themselves.
    let _ = one.shutdown(Shutdown::Both);
    let _ = other.shutdown(Shutdown::Both);
}

impl Connection {
    fn cut(self) {
        let Self { client, server, threads, open } = self;
        end(&client, &server);
        drop(open);
        for thread in threads {
            thread.join().expect("a connection's threads do not panic");
        }
    }
}

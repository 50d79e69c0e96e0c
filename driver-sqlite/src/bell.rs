//! Wake-ups: a datagram socket for each client, in a folder next to the file.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::driver::{Handed, QueueRouter, WakeRouter};
use tenure_core::queue::QueueName;
use tenure_core::{FencingToken, OwnerToken, Result};

use crate::error::of_system;

/// How often a letter is offered to a socket that is full, and what lies between: a client that is stopped reads nothing.
const OFFERS: u32 = 5;
const BETWEEN_OFFERS: Duration = Duration::from_micros(200);

const TOKEN: usize = 22;

/// What goes to another client once the transaction is committed.
#[derive(Clone, Debug)]
pub(crate) enum Letter {
    /// The waiter should ask.
    Wake(OwnerToken),
    /// The waiter has the lock.
    Hand(OwnerToken, Handed),
    /// A message is due sooner than the queue's waiting clients expected.
    Queue(QueueName),
    /// The receiving thread should end.
    End,
}

/// Whether a client can receive letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ear {
    Open,
    /// The process is gone, or has closed its client.
    Gone,
    /// Unknown: the socket may not be inspected.
    Unknown,
}

/// The folder with everybody's sockets.
#[derive(Debug)]
pub(crate) struct Belfry {
    /// Sockets are reached through it, so that no path is too long for an address.
    folder: File,
    caller: UnixDatagram,
}

/// One client's own socket. Its end ends the receiving thread.
#[derive(Debug)]
pub(crate) struct Bell {
    pub(crate) client: i64,
    pub(crate) locks: WakeRouter,
    pub(crate) queues: QueueRouter,
    belfry: Arc<Belfry>,
}

/// The folder that belongs to a file.
pub(crate) fn folder_of(file: &Path) -> PathBuf {
    let mut folder = file.as_os_str().to_owned();
    folder.push("-bells");
    folder.into()
}

impl Belfry {
    /// Opens the folder, which is made if it is not there, and clears away the sockets of dead clients. Returns whether any client
    /// is alive.
    pub(crate) fn open(file: &Path) -> Result<(Self, bool)> {
        let path = folder_of(file);
        let made = std::fs::create_dir(&path);
        if let Err(error) = made
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(of_system(format_args!("make the folder {}", path.display()), error));
        }
        let open = || {
            let caller = UnixDatagram::unbound()?;
            caller.set_nonblocking(true)?;
            Ok(Self { folder: File::open(&path)?, caller })
        };
        let belfry = open().map_err(|error| of_system(format_args!("open the folder {}", path.display()), error))?;
        let others = belfry.others(0);
        Ok((belfry, others))
    }

    /// Whether any client but this one listens; `0` is nobody's number. Looks at all of them.
    pub(crate) fn others(&self, own: i64) -> bool {
        let folder = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
        let names = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.file_name());
        let clients =
            names.filter_map(|name| i64::from_str_radix(name.to_str()?, 16).ok()).filter(|client| *client != own);
        clients.filter(|client| self.ear(*client) == Ear::Open).count() > 0
    }

    fn path(&self, client: i64) -> PathBuf {
        format!("/proc/self/fd/{}/{client:x}", self.folder.as_raw_fd()).into()
    }

    /// Whether the client listens. The socket of one who died is removed.
    pub(crate) fn ear(&self, client: i64) -> Ear {
        match self.caller.connect(self.path(client)).map_err(|error| error.kind()) {
            Ok(()) => Ear::Open,
            Err(io::ErrorKind::NotFound) => Ear::Gone,
            Err(io::ErrorKind::ConnectionRefused) => {
                drop(std::fs::remove_file(self.path(client))); // somebody else may have been faster
                Ear::Gone
            }
            Err(_) => Ear::Unknown,
        }
    }

    /// Sends a letter. One that does not arrive is made up for: its receiver asks again by itself.
    pub(crate) fn send(&self, client: i64, letter: &Letter) {
        let frame = letter.write();
        for _ in 0..OFFERS {
            match self.caller.send_to(&frame, self.path(client)) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => std::thread::sleep(BETWEEN_OFFERS),
                _ => return,
            }
        }
    }
}

impl Bell {
    /// Hangs up a bell with a number that no other client has, and listens.
    pub(crate) fn hang(belfry: Arc<Belfry>) -> Result<Self> {
        let hang = || -> io::Result<Self> {
            let client = i64::from_ne_bytes(random()?) & i64::MAX;
            let socket = UnixDatagram::bind(belfry.path(client))?;
            let bell = Self { client, locks: WakeRouter::default(), queues: QueueRouter::default(), belfry };
            let (locks, queues) = (bell.locks.clone(), bell.queues.clone());
            std::thread::Builder::new().name("tenure-bell".into()).spawn(move || listen(&socket, &locks, &queues))?;
            Ok(bell)
        };
        hang().map_err(|error| of_system("listen for wake-ups", error))
    }

    /// Passes a letter on to its waiter or queue of this client.
    pub(crate) fn ring(&self, letter: &Letter) {
        ring(&self.locks, &self.queues, letter);
    }
}

impl Drop for Bell {
    fn drop(&mut self) {
        self.belfry.send(self.client, &Letter::End);
        drop(std::fs::remove_file(self.belfry.path(self.client)));
    }
}

fn random() -> io::Result<[u8; 8]> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(io::Error::from)?;
    Ok(bytes)
}

fn listen(socket: &UnixDatagram, locks: &WakeRouter, queues: &QueueRouter) {
    let mut frame = [0; 1 + QueueName::MAX_LEN];
    loop {
        match socket.recv(&mut frame).map(|length| Letter::read(&frame[..length])) {
            Ok(Some(Letter::End)) => return,
            Ok(Some(letter)) => ring(locks, queues, &letter),
            Ok(None) => {} // not from this library
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

fn ring(locks: &WakeRouter, queues: &QueueRouter, letter: &Letter) {
    match letter {
        Letter::Wake(token) => drop(locks.wake(token)),
        Letter::Hand(token, handed) => drop(locks.hand(token, *handed)),
        Letter::Queue(name) => drop(queues.wake(name)),
        Letter::End => {}
    }
}

impl Letter {
    fn write(&self) -> Vec<u8> {
        let mut frame = Vec::with_capacity(64);
        match self {
            Self::Wake(token) => {
                frame.push(b'w');
                frame.extend_from_slice(token.expose().as_ref());
            }
            Self::Hand(token, Handed { fence, ttl, began_at, fences, .. }) => {
                frame.push(b'h');
                frame.extend_from_slice(token.expose().as_ref());
                let micros = |span: &Duration| u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
                for number in [fence.get(), micros(ttl), micros(began_at), u64::from(*fences)] {
                    frame.extend_from_slice(&number.to_le_bytes());
                }
            }
            Self::Queue(name) => {
                frame.push(b'q');
                frame.extend_from_slice(name.as_bytes());
            }
            Self::End => frame.push(b'e'),
        }
        frame
    }

    fn read(frame: &[u8]) -> Option<Self> {
        let (kind, rest) = frame.split_first()?;
        let token = |text: &[u8]| OwnerToken::parse(std::str::from_utf8(text).ok()?).ok();
        match kind {
            b'w' => Some(Self::Wake(token(rest)?)),
            b'h' => {
                let (text, numbers) = rest.split_at_checked(TOKEN)?;
                let (numbers, []) = numbers.as_chunks::<8>() else { return None };
                let [fence, ttl, began, fences] = <[[u8; 8]; 4]>::try_from(numbers).ok()?.map(u64::from_le_bytes);
                let (ttl, began_at) = (Duration::from_micros(ttl), Duration::from_micros(began));
                let fences = u32::try_from(fences).ok()?;
                Some(Self::Hand(
                    token(text)?,
                    Handed::new(FencingToken::new(fence)?, ttl, began_at).with_fences(fences),
                ))
            }
            b'q' => Some(Self::Queue(QueueName::new(rest).ok()?)),
            b'e' => Some(Self::End),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_come_back_and_anything_else_is_none() {
        let token = OwnerToken::random();
        let handed = Handed::new(
            FencingToken::new(1 << 50).unwrap(),
            Duration::from_millis(1_999),
            Duration::from_secs(1 << 30),
        )
        .with_fences(8);
        for letter in [
            Letter::Wake(token),
            Letter::Hand(token, handed),
            Letter::Queue(QueueName::new([0xff; QueueName::MAX_LEN]).unwrap()),
            Letter::End,
        ] {
            let frame = letter.write();
            assert_eq!(format!("{:?}", Letter::read(&frame).unwrap()), format!("{letter:?}"));
            assert!(frame.len() == 1 || Letter::read(&frame[..1]).is_none());
        }
        for frame in [&b""[..], b"w", b"hello", b"x", b"wshort"] {
            assert!(Letter::read(frame).is_none(), "{frame:?}");
        }
    }
}

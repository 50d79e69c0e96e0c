//! The connections to the members of one cluster, one at a time.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use etcd_client::{
    AuthClient, Client, GetResponse, KvClient, LeaseClient, MaintenanceClient, ResponseHeader, Txn, TxnOpResponse,
    TxnResponse, WatchClient,
};
use tenure_core::driver::reconnected;
use tenure_core::{Error, ErrorKind, Result};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::config::{EtcdConfig, Given, Members};
use crate::error::{EtcdError, of_a_read, says_token_is_old, translate};

/// What errors and spans call the driver.
pub(crate) const DRIVER: &str = "etcd";

/// A call that was given up after this long counts against the member that did not answer.
const PATIENCE: Duration = Duration::from_millis(300);

/// One member is in use until it fails; then the next. (The client library would spread the calls over all of them,
/// also over those that are frozen or gone.)
pub(crate) struct Link {
    config: EtcdConfig,
    members: Vec<Member>,
    current: AtomicUsize,
    /// Notified when another member comes into use.
    turned: watch::Sender<usize>,
    closed: AtomicBool,
    /// The raft term of the last answer; 0 before the first.
    term: AtomicU64,
}

struct Member {
    url: String,
    connected: Mutex<Option<Connected>>,
    connecting: tokio::sync::Mutex<()>,
    /// How often it was signed in to again.
    signed_in: AtomicUsize,
}

struct Connected {
    client: Arc<Client>,
    /// Cleared when the runtime ends that the connection lives on.
    alive: Arc<AtomicBool>,
    /// A given client is its owner's affair.
    canary: Option<tokio::task::AbortHandle>,
}

/// The parts of the client library that are used here. Each call makes the one that it needs.
pub(crate) struct Stubs(Arc<Client>, usize);

impl Stubs {
    /// Which member is called.
    pub(crate) fn member(&self) -> usize {
        self.1
    }

    pub(crate) fn kv(&self) -> KvClient {
        self.0.kv_client()
    }

    pub(crate) fn lease(&self) -> LeaseClient {
        self.0.lease_client()
    }

    pub(crate) fn maintenance(&self) -> MaintenanceClient {
        self.0.maintenance_client()
    }

    pub(crate) fn auth(&self) -> AuthClient {
        self.0.auth_client()
    }

    pub(crate) fn watch(&self) -> WatchClient {
        self.0.watch_client()
    }
}

impl Link {
    pub(crate) fn new(config: EtcdConfig) -> Self {
        let members = match &config.members {
            Members::Endpoints(endpoints) => {
                config.urls(endpoints).into_iter().map(|url| Member::new(url, None)).collect()
            }
            Members::Through(Given(client)) => {
                vec![Member::new("etcd through the given client".into(), Some(Connected::given(Arc::clone(client))))]
            }
        };
        let (turned, _) = watch::channel(0);
        Self {
            config,
            members,
            current: AtomicUsize::new(0),
            turned,
            closed: AtomicBool::new(false),
            term: AtomicU64::new(0),
        }
    }

    /// The members, as errors name them.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.members.iter().map(|member| &*member.url).collect()
    }

    pub(crate) fn ensure_open(&self) -> Result<()> {
        if self.closed.load(Ordering::Acquire) {
            return Err(Error::new(ErrorKind::Closed, "the driver was closed"));
        }
        Ok(())
    }

    /// Whether it was open until now.
    pub(crate) fn close(&self) -> bool {
        let first = !self.closed.swap(true, Ordering::AcqRel);
        for member in &self.members {
            member.connected.lock().unwrap_or_else(PoisonError::into_inner).take();
        }
        first
    }

    /// Returns once calls go to another member.
    pub(crate) async fn turned_from(&self, member: usize) {
        let mut turns = self.turned.subscribe();
        while self.current.load(Ordering::Acquire) == member {
            // The sender is this link's.
            let _ = turns.changed().await;
        }
    }

    /// The raft term of the last answer that was noted; 0 before the first.
    pub(crate) fn term(&self) -> u64 {
        self.term.load(Ordering::Relaxed)
    }

    /// Takes note of the raft term of an answer, and returns it.
    pub(crate) fn note(&self, header: Option<&ResponseHeader>) -> u64 {
        let term = header.map_or(0, ResponseHeader::raft_term);
        self.term.store(term, Ordering::Relaxed);
        term
    }

    pub(crate) async fn txn(&self, txn: Txn) -> Result<TxnResponse> {
        let answer = self.call(|stubs| {
            let txn = txn.clone();
            async move { stubs.kv().txn(txn).await }
        });
        let answer = answer.await?;
        self.note(answer.header());
        Ok(answer)
    }

    /// Calls the member in use; where that one cannot be reached (nothing was sent then), the others in turn.
    pub(crate) async fn call<T, F>(&self, call: impl Fn(Stubs) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let mut tried = 1;
        loop {
            let index = self.current.load(Ordering::Acquire);
            let error = match self.call_one(index, &call).await {
                Err(error) if error.kind() == ErrorKind::Unavailable => error,
                result => return result,
            };
            // Also behind the last one, so that the next call begins with another member.
            self.turn_from(index);
            if tried == self.members.len() {
                return Err(error);
            }
            tried += 1;
        }
    }

    /// The members, as they are connected to.
    pub(crate) fn places(&self) -> Vec<String> {
        self.members.iter().map(|member| member.url.clone()).collect()
    }

    /// Calls this member and no other, whichever is in use.
    pub(crate) async fn of_member<T, F>(&self, index: usize, call: impl Fn(Stubs) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        self.call_once(index, &call).await.map_err(of_a_read)
    }

    async fn call_one<T, F>(&self, index: usize, call: &impl Fn(Stubs) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        let mut unanswered = Unanswered { link: self, index, since: Instant::now(), answered: false };
        let member = &self.members[index];
        let signed_in = member.signed_in.load(Ordering::Acquire);
        let result = match self.call_once(index, call).await {
            Err(error) if says_token_is_old(&error) => match self.sign_in_again(member, signed_in).await {
                Ok(()) => self.call_once(index, call).await,
                Err(error) => Err(error),
            },
            result => result,
        };
        // By any answer, an error included: only silence counts against the member.
        unanswered.answered = true;
        result
    }

    async fn call_once<T, F>(&self, index: usize, call: &impl Fn(Stubs) -> F) -> Result<T>
    where
        F: Future<Output = Result<T, EtcdError>>,
    {
        call(Stubs(self.client(index).await?, index)).await.map_err(|error| translate(error, &self.members[index].url))
    }

    /// Gets a new token: the one that calls of this time used is of before a change of users. One of them does it for all.
    async fn sign_in_again(&self, member: &Member, known: usize) -> Result<()> {
        let _one = member.connecting.lock().await;
        let ready = member.ready();
        // Otherwise another call has signed in since this one took its token.
        if member.signed_in.load(Ordering::Acquire) == known
            && let Some(client) = ready
        {
            client.refresh_token().await.map_err(|error| of_a_read(translate(error, &member.url)))?;
            member.signed_in.fetch_add(1, Ordering::AcqRel);
        }
        Ok(())
    }

    /// The client of a member, connecting to it if need be. Only signing in needs the network.
    async fn client(&self, index: usize) -> Result<Arc<Client>> {
        self.ensure_open()?;
        let member = &self.members[index];
        if let Some(client) = member.ready() {
            return Ok(client);
        }
        let _one = member.connecting.lock().await;
        if let Some(client) = member.ready() {
            return Ok(client);
        }
        let client = Client::connect([&member.url], Some(self.config.options()));
        // Signing in changes nothing.
        let client = client.await.map_err(|error| of_a_read(translate(error, &member.url)))?;
        let connected = Connected::new(client);
        let client = Arc::clone(&connected.client);
        let before = member.connected.lock().unwrap_or_else(PoisonError::into_inner).replace(connected);
        if before.is_some() {
            reconnected(DRIVER);
        }
        // Closed in the meantime: no other call would close this connection.
        self.ensure_open()
            .inspect_err(|_| drop(member.connected.lock().unwrap_or_else(PoisonError::into_inner).take()))?;
        Ok(client)
    }

    /// Uses the next member, unless another call has seen to that already.
    fn turn_from(&self, index: usize) {
        let next = (index + 1) % self.members.len();
        if next != index && self.current.compare_exchange(index, next, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            self.turned.send_modify(|turns| *turns += 1);
        }
    }
}

impl Member {
    fn new(url: String, connected: Option<Connected>) -> Self {
        Self {
            url,
            connected: Mutex::new(connected),
            connecting: tokio::sync::Mutex::default(),
            signed_in: AtomicUsize::new(0),
        }
    }

    fn ready(&self) -> Option<Arc<Client>> {
        let connected = self.connected.lock().unwrap_or_else(PoisonError::into_inner);
        let alive = connected.as_ref().filter(|connected| connected.alive.load(Ordering::Acquire));
        alive.map(|connected| Arc::clone(&connected.client))
    }
}

impl Connected {
    fn new(client: Client) -> Self {
        let alive = Arc::new(AtomicBool::new(true));
        let fall = ClearOnDrop(Arc::clone(&alive));
        let canary = tokio::spawn(async move {
            let _fall = fall;
            std::future::pending::<()>().await;
        });
        Self { client: Arc::new(client), alive, canary: Some(canary.abort_handle()) }
    }

    fn given(client: Arc<Client>) -> Self {
        Self { client, alive: Arc::new(AtomicBool::new(true)), canary: None }
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.canary.iter().for_each(tokio::task::AbortHandle::abort);
    }
}

struct ClearOnDrop(Arc<AtomicBool>);

impl Drop for ClearOnDrop {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

/// A call on its way. Given up after a while, it moves the next calls to another member.
struct Unanswered<'a> {
    link: &'a Link,
    index: usize,
    since: Instant,
    answered: bool,
}

impl Drop for Unanswered<'_> {
    fn drop(&mut self) {
        if !self.answered && self.since.elapsed() >= PATIENCE.min(self.link.config.connect_timeout) {
            self.link.turn_from(self.index);
        }
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("config", &self.config).field("current", &self.current).finish_non_exhaustive()
    }
}
/// The revision that an answer was given in.
pub(crate) fn revision(answer: &TxnResponse) -> Result<i64> {
    answer.header().map(ResponseHeader::revision).ok_or_else(|| odd("an answer without a header"))
}

/// The raft term in which an answer was given: that of the leader that served it, or a later one.
pub(crate) fn term(answer: &TxnResponse) -> Result<u64> {
    answer.header().map(ResponseHeader::raft_term).ok_or_else(|| odd("an answer without a header"))
}

/// What the reads of an answer found, in order. Writes have none.
pub(crate) fn reads(answer: &TxnResponse) -> Vec<GetResponse> {
    let read = |part| match part {
        TxnOpResponse::Get(found) => Some(found),
        _ => None,
    };
    answer.op_responses().into_iter().filter_map(read).collect()
}

/// An answer that etcd does not give.
pub(crate) fn odd(what: &'static str) -> Error {
    Error::new(ErrorKind::Protocol, what)
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tonic::{Code, Status};

    use super::*;

    /// To members that do not answer; one is connected to all the same, as calls need no network until they leave.
    fn link(members: usize) -> Link {
        let hosts: Vec<_> = (1..=members).map(|port| format!("127.0.0.1:{port}")).collect();
        Link::new(format!("etcd://{}", hosts.join(",")).parse().unwrap())
    }

    fn current(link: &Link) -> usize {
        link.current.load(Ordering::Acquire)
    }

    /// Which members are called one after the other, where each answers so.
    async fn called(link: &Link, answers: &[Result<(), Status>]) -> (Vec<usize>, Result<()>) {
        let called = Mutex::new(Vec::new());
        let result = link.call(|stubs| {
            called.lock().unwrap().push(stubs.member());
            let answer = answers[stubs.member()].clone();
            async move { answer.map_err(EtcdError::GRpcStatus) }
        });
        let result = result.await;
        (called.into_inner().unwrap(), result)
    }

    #[tokio::test]
    async fn a_call_continues_to_the_next_member_only_where_nothing_was_done() {
        let away = || Err(Status::new(Code::Unavailable, "etcdserver: no leader"));
        let slow = || Err(Status::new(Code::Unavailable, "etcdserver: request timed out"));
        for (answers, asked, fails) in [
            ([Ok(()), away(), away()], vec![0], None),
            ([away(), away(), Ok(())], vec![0, 1, 2], None),
            ([away(), slow(), Ok(())], vec![0, 1], Some(ErrorKind::Indeterminate)),
            ([away(), away(), away()], vec![0, 1, 2], Some(ErrorKind::Unavailable)),
        ] {
            let link = link(3);
            let (called, result) = called(&link, &answers).await;
            assert_eq!((called, result.err().map(|error| error.kind())), (asked, fails));
        }
        let link = link(3);
        called(&link, &[away(), Ok(()), away()]).await.1.unwrap();
        assert_eq!(called(&link, &[away(), Ok(()), away()]).await.0, [1], "it stays with the one that serves");
        assert_eq!(called(&link, &[Ok(()), away(), away()]).await.0, [1, 2, 0], "and begins anew behind the last one");
    }

    #[tokio::test]
    async fn of_two_calls_that_fail_alike_one_moves_on_and_who_follows_hears_of_it() {
        let link = link(2);
        let turned = link.turned_from(0);
        tokio::pin!(turned);
        assert!(turned.as_mut().now_or_never().is_none());
        link.turn_from(0);
        link.turn_from(0);
        assert_eq!(current(&link), 1);
        turned.await;
        link.turned_from(0).await;
        link.turn_from(1);
        assert_eq!(current(&link), 0);
        let only = self::link(1);
        let turned = only.turned_from(0);
        tokio::pin!(turned);
        only.turn_from(0);
        assert!(turned.as_mut().now_or_never().is_none(), "there is no other");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_given_up_after_a_while_moves_the_next_ones_on() {
        for (connects_in, patience, answered, moves) in [
            (200, 199, false, false),
            (200, 200, false, true),
            (200, 200, true, false),
            (9_000, 299, false, false),
            (9_000, 300, false, true),
        ] {
            let mut link = link(2);
            link.config.connect_timeout = Duration::from_millis(connects_in);
            let call = Unanswered { link: &link, index: 0, since: Instant::now(), answered };
            tokio::time::advance(Duration::from_millis(patience)).await;
            drop(call);
            assert_eq!(current(&link) == 1, moves, "after {patience} ms, of {connects_in} ms");
        }
    }

    #[tokio::test]
    async fn a_link_is_closed_once_and_calls_nobody_then() {
        let link = link(2);
        called(&link, &[Ok(()), Ok(())]).await.1.unwrap();
        assert_eq!(link.names(), ["http://127.0.0.1:1", "http://127.0.0.1:2"]);
        assert_eq!(link.places(), link.names());
        assert!(link.members[0].ready().is_some() && link.members[1].ready().is_none());
        assert!(link.ensure_open().is_ok());
        assert!(link.close() && !link.close());
        assert!(link.members[0].ready().is_none());
        let (asked, result) = called(&link, &[Ok(()), Ok(())]).await;
        assert_eq!((asked, result.unwrap_err().kind()), (Vec::new(), ErrorKind::Closed));
    }

    /// However long the answer took: that member is slow, and not gone.
    #[tokio::test(start_paused = true)]
    async fn a_call_that_was_answered_moves_nothing() {
        let link = link(2);
        let slow = link.call(|_| async {
            tokio::time::sleep(PATIENCE * 2).await;
            Ok::<_, EtcdError>(())
        });
        slow.await.unwrap();
        assert_eq!(current(&link), 0);
    }

    #[tokio::test]
    async fn a_connection_serves_all_calls_and_its_end_is_noticed() {
        let link = link(1);
        let first = link.client(0).await.unwrap();
        assert!(Arc::ptr_eq(&first, &link.client(0).await.unwrap()), "one is enough");
        let connected = link.members[0].connected.lock().unwrap().take().unwrap();
        let (alive, canary) = (Arc::clone(&connected.alive), connected.canary.clone().unwrap());
        tokio::task::yield_now().await;
        assert!(alive.load(Ordering::Acquire) && !canary.is_finished());
        drop(connected);
        tokio::task::yield_now().await;
        assert!(!alive.load(Ordering::Acquire) && canary.is_finished());
    }
}

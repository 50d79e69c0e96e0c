//! A layer for [`tower`](https://docs.rs/tower) services: each request is served under a lock whose name is computed from it.
//!
//! ```
//! # #[cfg(feature = "memory")]
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! use http::{Request, Response, StatusCode};
//! use tenure::FencingToken;
//! use tenure::tower::{LockLayer, Refused};
//! use tower::{BoxError, ServiceBuilder, ServiceExt};
//!
//! let client = tenure::connect("memory:").await?;
//! let locked = LockLayer::new(
//!     move |request: &Request<String>| client.lock(request.uri().path()),
//!     |refused| {
//!         let status = match refused {
//!             Refused::Busy(_) => StatusCode::CONFLICT,
//!             // Or an answer for each: see examples/web.
//!             refused => return Err(BoxError::from(refused)),
//!         };
//!         Ok(Response::builder().status(status).body(String::new())?)
//!     },
//! );
//! let write = async |request: Request<String>| {
//!     let fence = request.extensions().get::<FencingToken>();
//!     let fence = fence.ok_or("no fence")?;
//!     Ok::<_, BoxError>(Response::new(format!("written with fence {fence}")))
//! };
//! let service = ServiceBuilder::new().layer(locked.insert_fence());
//! let service = service.service_fn(write);
//!
//! let request = Request::get("/orders/42").body(String::new()).unwrap();
//! let response = service.oneshot(request).await.unwrap();
//! assert_eq!(response.status(), StatusCode::OK);
//! # Ok::<(), tenure::Error>(())
//! # }).unwrap();
//! ```

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, mem};

use tower_layer::Layer;
use tower_service::Service;

use crate::{Error, Lock, LockGuard, LockName};

/// A layer that serves each request under a lock: it takes the lock, calls the inner service, and releases the lock
/// before the response is returned, so that a client that has its answer and sends another request does not meet its
/// own lock.
///
/// * **Busy**: without [`wait`](Self::wait) the request is refused at once, with it after that time.
/// * **Lost**: when the lease ends while the inner service works, its future is dropped unfinished, and the request is
///   refused with [`Refused::Lost`]. The same happens when the release finds that the lock had been lost: the work may
///   have been done concurrently with another holder. A task that the service has spawned, or a thread that it blocks,
///   is not stopped by that: pass the [fence](Self::insert_fence) to every store that is written.
/// * **The body** of a response is sent after the release of the lock, if it is a stream that is still being made by
///   then.
/// * **Readiness** is the inner service's: a place that it reserves for the request is taken while the request waits
///   for its lock. A limit of concurrent requests belongs inside this layer if waiting should count, and outside if it
///   should not.
///
/// The response's future allocates once. Clones are the same layer.
///
/// # Cancel safety
///
/// Dropping the response's future (a server does that when the client hangs up) gives up the place in the queue, or
/// drops the inner service's future and releases the lock in the background.
#[must_use = "a layer does nothing until it is applied to a service"]
pub struct LockLayer<Req, Res, E> {
    lock: Arc<LockOf<Req>>,
    insert: Option<Arc<Insert<Req>>>,
    refuse: Arc<Refuse<Res, E>>,
    wait: Duration,
}

type LockOf<Req> = dyn Fn(&Req) -> Option<Lock> + Send + Sync;
type Insert<Req> = dyn Fn(&mut Req, &LockGuard) + Send + Sync;
type Refuse<Res, E> = dyn Fn(Refused) -> Result<Res, E> + Send + Sync;

/// The reason why a request was not served, or not to its end.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Refused {
    /// Another client holds this lock, and the layer does not wait. The inner service was not called.
    Busy(LockName),
    /// Another client held the lock for the whole wait. The inner service was not called.
    TimedOut(Error),
    /// The lock request failed: the backend is unavailable, the name is invalid, a limit was reached. The inner service
    /// was not called.
    Failed(Error),
    /// The lease ended after the inner service was called. Its effects until then remain.
    Lost(Error),
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy(name) => write!(f, "the lock {name} is taken"),
            Self::TimedOut(error) | Self::Failed(error) | Self::Lost(error) => fmt::Display::fmt(error, f),
        }
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Busy(_) => None,
            Self::TimedOut(error) | Self::Failed(error) | Self::Lost(error) => error.source(),
        }
    }
}

impl<Req, Res, E> LockLayer<Req, Res, E> {
    /// Makes a layer that takes the lock that `lock` returns for a request, and answers by `refuse` if it cannot serve
    /// the request. A request for which `lock` returns `None` is served without a lock.
    ///
    /// Set the lock's own options in `lock`: a ttl, a label, a `max_hold`. Requests for one thing must get one name:
    /// consider percent encoding and a trailing slash if it comes from a path. `refuse` returns a response, or an error
    /// of the service.
    pub fn new<L: Into<Option<Lock>>>(
        lock: impl Fn(&Req) -> L + Send + Sync + 'static,
        refuse: impl Fn(Refused) -> Result<Res, E> + Send + Sync + 'static,
    ) -> Self {
        let lock = move |request: &Req| lock(request).into();
        Self { lock: Arc::new(lock), insert: None, refuse: Arc::new(refuse), wait: Duration::ZERO }
    }

    /// Sets the longest wait for a busy lock. Default: zero, which is one attempt.
    ///
    /// Choose a longer time than the client's [`op_timeout`](crate::ClientBuilder::op_timeout), so that an outage can
    /// be distinguished: if the backend had less time to answer, it is not known if the lock is taken, and that is
    /// [`Refused::TimedOut`] too.
    pub fn wait(mut self, most: Duration) -> Self {
        self.wait = most;
        self
    }

    /// Adds a hook that puts data of the hold into the request before the inner service is called: its fence, or a
    /// handle on its loss. Runs after earlier hooks.
    pub fn insert(mut self, insert: impl Fn(&mut Req, &LockGuard) + Send + Sync + 'static) -> Self
    where
        Req: 'static,
    {
        let before = self.insert.take();
        self.insert = Some(Arc::new(move |request: &mut Req, guard: &LockGuard| {
            if let Some(before) = &before {
                before(request, guard);
            }
            insert(request, guard);
        }));
        self
    }

    /// Serves one request with a ready service.
    async fn serve<S>(self, mut inner: S, lock: Lock, mut request: Req) -> Result<Res, E>
    where
        S: Service<Req, Response = Res, Error = E>,
    {
        let guard = match self.take(&lock).await {
            Ok(guard) => guard,
            Err(refused) => return (self.refuse)(refused),
        };
        if let Some(insert) = &self.insert {
            insert(&mut request, &guard);
        }
        let served = guard.run(inner.call(request)).await;
        match (served, guard.release().await) {
            (Err(error), _) => (self.refuse)(Refused::Lost(error)),
            (Ok(_), Err(error)) if error.is_lost() => (self.refuse)(Refused::Lost(error)),
            (Ok(answer), _) => answer, // a release that failed otherwise goes on in the background
        }
    }

    async fn take(&self, lock: &Lock) -> Result<LockGuard, Refused> {
        let taken = match self.wait {
            Duration::ZERO => lock.try_acquire().await,
            most => lock.acquire_within(most).await.map(Some),
        };
        match taken {
            Ok(Some(guard)) => Ok(guard),
            Ok(None) => Err(lock.name().map_or_else(Refused::Failed, |name| Refused::Busy(name.clone()))),
            Err(error) if error.is_timed_out() => Err(Refused::TimedOut(error)),
            Err(error) => Err(Refused::Failed(error)),
        }
    }
}

impl<B: 'static, Res, E> LockLayer<http::Request<B>, Res, E> {
    /// Puts the [`FencingToken`](crate::FencingToken) of the hold into the request's extensions.
    pub fn insert_fence(self) -> Self {
        self.insert(|request, guard| {
            request.extensions_mut().insert(guard.fence());
        })
    }
}

impl<Req, Res, E> Clone for LockLayer<Req, Res, E> {
    fn clone(&self) -> Self {
        let Self { lock, insert, refuse, wait } = self;
        Self { lock: Arc::clone(lock), insert: insert.clone(), refuse: Arc::clone(refuse), wait: *wait }
    }
}

impl<Req, Res, E> fmt::Debug for LockLayer<Req, Res, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LockLayer").field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl<S, Req, Res, E> Layer<S> for LockLayer<Req, Res, E> {
    type Service = LockService<S, Req, Res, E>;

    fn layer(&self, inner: S) -> Self::Service {
        LockService { inner, layer: self.clone() }
    }
}

/// A service each of whose requests is served under a lock; made by [`LockLayer`].
#[derive(Debug)]
pub struct LockService<S, Req, Res, E> {
    inner: S,
    layer: LockLayer<Req, Res, E>,
}

impl<S: Clone, Req, Res, E> Clone for LockService<S, Req, Res, E> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, Req, Res, E> Service<Req> for LockService<S, Req, Res, E>
where
    S: Service<Req, Response = Res, Error = E> + Clone + Send + 'static,
    S::Future: Send + 'static,
    Req: Send + 'static,
    Res: Send + 'static,
    E: Send + 'static,
{
    type Response = Res;
    type Error = E;
    type Future = Pin<Box<dyn Future<Output = Result<Res, E>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), E>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Req) -> Self::Future {
        let Some(lock) = (self.layer.lock)(&request) else { return Box::pin(self.inner.call(request)) };
        // The one that is ready serves this request; a clone of it gets ready for the next one.
        let next = self.inner.clone();
        let ready = mem::replace(&mut self.inner, next);
        Box::pin(self.layer.clone().serve(ready, lock, request))
    }
}

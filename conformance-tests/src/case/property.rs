//! The properties that cases cover.

/// A property of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Property {
    /// Its number: `"P19"`. Numbers stay as they are, and have gaps.
    pub number: &'static str,
    /// The statement of the property, in one sentence.
    pub holds: &'static str,
}

/// All properties that a case may name: first those of the contract (P), then mistakes that were seen in other lock libraries
/// and must not happen here (R).
#[must_use]
pub const fn properties() -> &'static [Property] {
    ALL
}

macro_rules! properties {
    ($($number:ident $holds:literal)*) => {
        &[$(Property { number: stringify!($number), holds: $holds }),*]
    };
}

const ALL: &[Property] = properties! {
    P1 "The validity windows of two grants of one lock never overlap."
    P2 "A holder's window begins before its request was sent and ends before the lease of the backend does."
    P3 "A grant whose window has already ended is not returned."
    P4 "A holder learns of its loss before another client is granted the lock."
    P5 "A lost lease stays lost, whatever answers arrive later."
    P6 "A confirmed renewal lengthens the lease from the moment it was sent; no renewal shortens it."
    P7 "A renewal never revives a lease that has ended, and never touches the lease of another token."
    P8 "No renewal is sent after the release of its token."
    P9 "A release frees the lock only if its token holds it."
    P10 "A release can be repeated without harm, and one that failed is retried until it is acknowledged."
    P11 "A request whose answer did not arrive leaves no lock behind."
    P12 "Dropping a future at any await point leaves no lock, no waiter and no subscription behind."
    P13 "Clean-up continues after its caller was cancelled, and a dropped guard frees its lock."
    P14 "Each acquisition has a token of its own."
    P15 "`try_acquire` sends one request, returns within the operation's timeout, and never queues."
    P16 "A wait with a limit ends at that limit, also while the backend is silent."
    P17 "After a holder or a waiter has died, the next waiter is granted the lock within the ttl and the presence."
    P18 "A lost wake-up delays a waiter and never makes it miss the lock."
    P19 "No two grants of one lock have the same fence."
    P20 "A grant that was requested after another one was returned has the greater fence."
    P21 "Successive holders have growing fences."
    P22 "The fence of a guard never changes."
    P23 "Fences keep growing after expiry, release, a forced release and a restart."
    P24 "Waiters of a fair lock are served in the order of their arrival; a dead waiter delays the others by its presence at most."
    P25 "The places of waiters do not depend on the clocks of clients."
    P26 "Each kind of failure has an error kind of its own; an outage is never reported as a busy lock."
    P27 "Different names are different locks, whatever bytes they consist of."
    P28 "The ttl is at least what was asked for; every lease has an end; a ttl out of range is refused."
    P29 "A repeated or delayed request changes nothing, and looking changes nothing."
    P30 "Nothing leaks: no keys without an end, no tasks, no subscriptions, no needless requests."
    P31 "The owner of a re-entrant lock is an explicit value, the same on every client."
    P32 "A re-entrant lock that was entered n times is free after n exits, not before."
    P33 "Entering again never shortens the lease."
    P34 "Only the owner can exit or renew a re-entrant lock."
    P35 "All entries of one hold have the same fence."
    P36 "The entries of a hold are renewed together and lost together; the next hold is a new one."
    P37 "The depth of re-entry has a limit, and one entry more is an error."
    P49 "Several locks are taken in the order of their names, each once."
    P50 "Several locks are taken all or none."
    P51 "Clients that take overlapping sets of locks do not deadlock."
    P52 "The window of several locks ends with the first of them, and each has its own fence."
    P53 "No message is lost, and every stored message can be found."
    P54 "No message is delivered before it is due, by the backend's clock."
    P55 "A waiting receiver gets a message soon after it is due, also after a reconnect."
    P56 "During the lease of a delivery no other receiver gets the message."
    P57 "A settlement or extension needs the receipt of the current delivery; an older one changes nothing."
    P58 "Attempts are counted exactly, and a message that has used them up is a dead letter that keeps its payload."
    P59 "A push with a known id stores nothing, for as long as the id's window lasts."
    P60 "Messages are delivered in the order of their due times, and equal ones in the order of their pushes."
    P61 "A message is stored whole or not at all, and its payload comes back byte for byte."
    P62 "The list of held locks names every lock that is held while it is made, and none that is free."
    P63 "No grant makes the holds of a semaphore weigh more than the capacity that its request names."
    P64 "A request for several permits is granted all or none of them; an impossible one is refused unsent."
    P65 "Waiters for permits are served in the order of their arrival, whatever they weigh."
    P66 "Each hold of permits has a lease and a fence of its own, and no request for one hold changes another."
    P67 "A step that makes room serves every waiter at the front that fits now."
    P68 "The room of a notified waiter is reserved for a claim window, and no longer."
    P69 "A change of weight keeps the lease, and one that arrives after a later change has no effect."
    P70 "A read-write lock has readers together, or one writer alone; an upgradable reader is the only one of its kind."
    P71 "Neither readers nor writers of a read-write lock are starved."
    P72 "A resource that checks fences refuses a writer after a later holder, and a reader after a later writer."
    R1 "A library returned a timeout at once instead of waiting."
    R2 "A dropped guard kept its lock until the ttl."
    R3 "A stale guard freed the lock of the next holder, because both came from one handle."
    R7 "A very short ttl led to a loop of requests without a pause."
    R8 "A delay of zero led to a panic."
    R10 "A default ttl of milliseconds, not renewed, let several clients hold one lock."
    R11 "Milliseconds were sent as seconds, so that a lock lasted a thousand times longer."
    R12 "A cancelled acquire left a lock that nobody held."
};

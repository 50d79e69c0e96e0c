//! Delay queues through the blocking API.

use tenure::queue::{Message, Pushed, Settled};

use super::*;

fn queue(client: &Client) -> Queue<String> {
    client.queue("letters").unwrap()
}

#[test]
fn messages_are_pushed_received_and_settled() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let (out, into) = (queue(&one), queue(&other));
        assert!(into.try_receive().unwrap().is_none());
        let order = || Message::new(&*ORDER).id("order/7");
        assert!(matches!(out.push(order()).unwrap(), Pushed::Stored(_)));
        assert!(matches!(out.push(order()).unwrap(), Pushed::Duplicate(_)));

        let first = into.receive().unwrap();
        assert_eq!((first.value().unwrap(), first.attempt()), (&*ORDER, 1));
        first.extend(Duration::from_secs(60)).unwrap();
        assert!(first.remaining() > Duration::from_secs(50));
        first.nack(Duration::ZERO).unwrap();
        let second = into.receive_within(PATIENCE).unwrap().expect("it is due again");
        assert_eq!(second.attempt(), 2);
        assert_eq!(second.give_back(Duration::ZERO).unwrap(), Settled::Done);
        let again = into.receive_within(PATIENCE).unwrap().expect("it was given back");
        assert_eq!(again.ack().unwrap(), Settled::Done);

        out.push_many([&*ORDER, &*ORDER]).unwrap();
        let both = into.receive_many(2, Duration::MAX).unwrap();
        let count = both.len();
        assert_eq!(into.ack_many(both).unwrap(), vec![Settled::Done; count]);
    });
}

static ORDER: std::sync::LazyLock<String> = std::sync::LazyLock::new(|| "seven".into());

#[test]
fn a_receiver_is_woken_by_a_push_and_at_the_due_time() {
    on_each_backend(|connect| {
        let (one, other) = (connect(), connect());
        let (out, into) = (queue(&one), queue(&other));
        scope(|threads| {
            let receiving = threads.spawn(|| into.receive_within(PATIENCE).unwrap().expect("a message").ack());
            sleep(Duration::from_millis(100)); // so that it waits already, as a rule
            out.push(Message::new(&*ORDER).delay(Duration::from_millis(200))).unwrap();
            assert_eq!(receiving.join().unwrap().unwrap(), Settled::Done);
        });
    });
}

#[test]
fn a_dropped_delivery_comes_back_as_a_failed_attempt() {
    on_each_backend(|connect| {
        let client = connect();
        let queue = queue(&client);
        queue.push(&*ORDER).unwrap();
        drop(queue.receive().unwrap());
        let again = queue.receive_within(PATIENCE).unwrap().expect("it comes back");
        assert_eq!(again.attempt(), 2);
        again.bury(None).unwrap();
    });
}

//! The requests of a queue and its task: in which order they leave, which answers count, what closing waits for, and when the
//! task ends.

use futures_util::future::join_all;
use tenure_core::ErrorKind;
use tenure_core::driver::Settled;
use tenure_core::queue::{Delivery, Queue};
use tenure_memory::Operation;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::queues::stage::{Mishap, ms, plan, staged, staged_with};

async fn received(queue: &Queue<String>, count: usize) -> Vec<Delivery<String>> {
    let mut deliveries = Vec::new();
    for number in 0..count {
        queue.push(&number.to_string()).await.unwrap();
        deliveries.push(queue.receive().await.unwrap());
    }
    deliveries
}

#[tokio::test(start_paused = true)]
async fn settlements_leave_in_batches_and_in_the_order_in_which_they_were_asked_for() {
    let (_, memory, _, queue) = staged_with(|caps| caps.batch = 2);
    let deliveries = received(&queue, 5).await;
    memory.faults().delay(Operation::Settle, ms(10));
    let start = Instant::now();
    let acks = deliveries.into_iter().map(async |delivery| {
        delivery.ack().await.unwrap();
        start.elapsed().as_millis() / 10
    });
    assert_eq!(join_all(acks).await, [1, 1, 2, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn closing_waits_for_settlements_that_have_not_left() {
    let (_, _, client, queue) = staged_with(|caps| caps.batch = 2);
    let acks = join_all(received(&queue, 5).await.into_iter().map(Delivery::ack));
    let (acks, closed) = tokio::join!(acks, client.close(ms(1_000)));
    closed.unwrap();
    assert!(acks.iter().all(|settled| matches!(settled, Ok(Settled::Done))), "{acks:?}");
}

#[test]
fn closing_waits_for_no_receive_that_ended_with_its_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let (_, memory, client, queue) = staged();
    memory.faults().hang_next(Operation::Receive);
    runtime().block_on(async { assert!(timeout(ms(10), queue.receive()).await.is_err(), "it is on its way") });
    runtime().block_on(client.close(ms(1_000))).unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_task_stays_for_a_while_after_its_last_work() {
    let tasks = || Handle::current().metrics().num_alive_tasks();
    let (_, _, client, queue) = staged();
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    let of_the_client = tasks();
    let ends_after_a_while = async || {
        sleep(ms(9_000)).await;
        assert_eq!(tasks(), of_the_client + 1, "more may come");
        sleep(ms(2_000)).await;
        assert_eq!(tasks(), of_the_client);
    };
    assert!(timeout(ms(55_000), queue.receive()).await.is_err(), "it asks seldom by then");
    ends_after_a_while().await;
    assert!(queue.try_receive().await.unwrap().is_none());
    sleep(ms(5_000)).await;
    assert!(queue.try_receive().await.unwrap().is_none());
    ends_after_a_while().await;
}

#[tokio::test(start_paused = true)]
async fn what_a_driver_does_not_answer_has_not_succeeded() {
    let (stage, _, _, queue) = staged();
    plan(&stage.pushes, [Mishap::Short]);
    let failed = queue.push_many(&["a", "b"].map(str::to_owned)).await.unwrap_err();
    assert_eq!(failed.error().kind(), ErrorKind::Protocol);
    let both = queue.receive_many(2, ms(0)).await.unwrap();
    plan(&stage.extends, [Mishap::Short]);
    let extended = join_all(both.iter().map(|delivery| delivery.extend(ms(60_000)))).await;
    assert_eq!(extended[1].as_ref().unwrap_err().kind(), ErrorKind::Protocol);
    plan(&stage.settles, [Mishap::Short]);
    for settled in join_all(both.into_iter().map(Delivery::ack)).await {
        assert_eq!(settled.unwrap_err().kind(), ErrorKind::Protocol, "nobody knows which one was not answered");
    }
}

#[tokio::test(start_paused = true)]
async fn receivers_are_served_in_the_order_in_which_they_came() {
    let (_, _, _, queue) = staged();
    let receive = async || {
        let delivery = queue.receive().await.unwrap();
        let text = delivery.value().unwrap().clone();
        delivery.ack().await.unwrap();
        text
    };
    let later = async {
        sleep(ms(100)).await;
        for text in ["a", "b", "c"] {
            queue.push(&text.to_owned()).await.unwrap();
            sleep(ms(100)).await;
        }
    };
    let (first, second, third, ()) = tokio::join!(receive(), receive(), receive(), later);
    assert_eq!([first, second, third], ["a", "b", "c"]);
}

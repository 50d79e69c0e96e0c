//! The check-up tells what the members mean for locks.

use crate::common::server;
use etcd_client::{AlarmAction, AlarmOptions, AlarmType, Permission};
use tenure_core::driver::{Checkup, Concern, Finding, Topic};
use tenure_core::{Client, ErrorKind};
use tenure_etcd::{EtcdConfig, EtcdDriver};
use tenure_testkit::{ClosedPort, EtcdCluster};

#[tokio::test]
async fn each_member_is_looked_at_and_a_ping_tells_whether_locks_are_served() {
    let cluster = server();
    let client = Client::new(EtcdDriver::connect(&cluster.url()).await.unwrap());
    client.ping().await.unwrap();
    let checkup = client.doctor().await.unwrap();
    let version = checkup.findings().iter().find(|finding| finding.topic == Topic::Version).unwrap();
    assert!(version.concern < Concern::Danger, "what is installed: {checkup}");
    for topic in [Topic::Reach, Topic::Storage, Topic::Alarms, Topic::Clock] {
        let found = checkup.findings().iter().find(|finding| finding.topic == topic);
        assert_eq!(found.map(|finding| finding.concern), Some(Concern::Fine), "{topic:?}: {checkup}");
    }
}

#[tokio::test]
async fn a_member_that_is_away_is_a_finding_and_a_cluster_that_is_away_an_error() {
    let cluster = server();
    let closed = ClosedPort::new().unwrap();
    let gone = closed.number();
    let client = Client::new(EtcdDriver::connect(&EtcdCluster::url_of(&[cluster.ports()[0], gone])).await.unwrap());
    let checkup = client.doctor().await.unwrap();
    let away = checkup.findings().iter().find(|finding| finding.server.ends_with(&gone.to_string())).unwrap();
    assert_eq!((away.topic, away.concern), (Topic::Reach, Concern::Note), "{checkup}");
    assert!(away.seen.contains("refused"), "{checkup}");
    drop(cluster);
    assert_eq!(client.doctor().await.unwrap_err().kind(), ErrorKind::Unavailable);
    assert_eq!(client.ping().await.unwrap_err().kind(), ErrorKind::Unavailable);
}

fn found(checkup: &Checkup, topic: Topic) -> &Finding {
    let found = |finding: &&Finding| finding.topic == topic && finding.server == "the cluster";
    checkup.findings().iter().find(found).unwrap_or_else(|| panic!("{topic:?}: {checkup}"))
}

#[tokio::test]
async fn whether_the_past_is_compacted_is_reported() {
    let cluster = server();
    let client = Client::new(EtcdDriver::connect(&cluster.url()).await.unwrap());
    client.lock("a").acquire().await.unwrap().release().await.unwrap();
    let checkup = client.doctor().await.unwrap();
    let past = found(&checkup, Topic::Storage);
    assert!(past.concern == Concern::Fine && past.seen.contains("was ever compacted"), "{checkup}");
    let mut etcd = crate::common::raw(&cluster).await;
    let revision = etcd.put("x", "", None).await.unwrap().header().unwrap().revision();
    etcd.compact(revision, None).await.unwrap();
    let checkup = client.doctor().await.unwrap();
    let past = found(&checkup, Topic::Storage);
    assert!(past.concern == Concern::Fine && past.seen.contains("are compacted"), "{checkup}");
}

#[tokio::test]
async fn whether_users_have_to_sign_in_is_reported() {
    let cluster = server();
    let anybody = Client::new(EtcdDriver::connect(&cluster.url()).await.unwrap());
    let checkup = anybody.doctor().await.unwrap();
    let users = found(&checkup, Topic::Rights);
    assert!(users.concern == Concern::Note && users.seen.contains("authentication is off"), "{checkup}");

    let mut etcd = crate::common::raw(&cluster).await;
    let given = Client::new(EtcdDriver::new(EtcdConfig::through(etcd.clone())));
    let checkup = given.doctor().await.unwrap();
    assert!(found(&checkup, Topic::Rights).seen.contains("this client may administer"), "{checkup}");
    etcd.user_add("root", "rootpw", None).await.unwrap();
    etcd.user_grant_role("root", "root").await.unwrap();
    etcd.role_add("app").await.unwrap();
    etcd.role_grant_permission("app", Permission::read_write("tenure/").with_prefix()).await.unwrap();
    etcd.user_add("app", "s3cret", None).await.unwrap();
    etcd.user_grant_role("app", "app").await.unwrap();
    etcd.auth_enable().await.unwrap();
    for (user, concern, seen) in
        [("root:rootpw", Concern::Note, "may administer all 2"), ("app:s3cret", Concern::Fine, "may not administer")]
    {
        let url = cluster.url().replace("etcd://", &format!("etcd://{user}@"));
        let client = Client::new(EtcdDriver::connect(&url).await.unwrap());
        let checkup = client.doctor().await.unwrap();
        let users = found(&checkup, Topic::Rights);
        assert!(users.concern == concern && users.seen.contains(seen), "{user}: {checkup}");
    }
}

/// etcd refuses what grows once its quota is used up, and tells so by an alarm that stays.
#[tokio::test]
async fn an_alarm_is_a_danger() {
    let cluster = server();
    let client = Client::new(EtcdDriver::connect(&cluster.url()).await.unwrap());
    let mut etcd = crate::common::raw(&cluster).await;
    for alarm in [AlarmType::Nospace, AlarmType::Corrupt] {
        let member = etcd.member_list().await.unwrap().members()[0].id();
        let options = || {
            let mut options = AlarmOptions::new();
            options.with_member(member);
            Some(options)
        };
        etcd.alarm(AlarmAction::Activate, alarm, options()).await.unwrap();
        let checkup = client.doctor().await.unwrap();
        let reported = checkup.findings().iter().find(|finding| finding.topic == Topic::Alarms).unwrap();
        assert_eq!(reported.concern, Concern::Danger, "{checkup}");
        assert!(reported.seen.to_lowercase().contains(&format!("{alarm:?}").to_lowercase()), "{checkup}");
        etcd.alarm(AlarmAction::Deactivate, alarm, options()).await.unwrap();
    }
    let checkup = client.doctor().await.unwrap();
    assert!(checkup.concern() < Concern::Danger, "{checkup}");
}

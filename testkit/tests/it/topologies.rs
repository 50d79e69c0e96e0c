//! Several servers that work together.

use std::time::Duration;

use tenure_testkit::{RedisCluster, RedisOptions, RedisSentinels, Reply};

#[test]
fn a_cluster_serves_every_key_from_one_node_and_redirects_from_the_others() {
    let cluster = RedisCluster::start(&RedisOptions::new(), Duration::from_secs(15)).unwrap();
    for key in [b"a".as_slice(), b"b", b"c", b"d"] {
        let owner = cluster.owner(key).unwrap();
        let answer = cluster.nodes()[owner].cli(&[b"SET".as_slice(), key, b"1"]).unwrap();
        assert_eq!(answer, Reply::Status("OK".into()));
        let other = &cluster.nodes()[(owner + 1) % 3];
        assert!(other.cli(&[b"GET".as_slice(), key]).unwrap_err().to_string().contains("MOVED"));
    }
}

#[test]
fn sentinels_fail_over_when_they_are_asked_to() {
    let group = RedisSentinels::start(&RedisOptions::new(), Duration::from_secs(60)).unwrap();
    let before = group.primary().unwrap();
    group.fail_over().unwrap();
    tenure_testkit::eventually("another primary", || (group.primary().ok()? != before).then_some(())).unwrap();
}

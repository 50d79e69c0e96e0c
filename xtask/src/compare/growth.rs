//! `docs/growth.md`: the curves of `cargo xtask compare growth`, their tables, and what a large fleet would take.

use serde_json::{Value, json};

use super::chart;
use super::table::{about, list, number, table, text};

/// The comparison, and the name of its JSON.
pub(super) const NAME: &str = "growth";
pub(super) const PAGE: &str = "docs/growth.md";

/// The texts of the page, each under the name of its markers.
pub(super) fn texts(report: &Value) -> Vec<(String, String)> {
    let mut head = about(&report["about"]);
    for (name, why) in report["left_out"].as_object().into_iter().flatten() {
        head.push_str(&format!("\n* Left out: {name}: {}", text(why)));
    }
    let sections = list(&report["sections"]).iter();
    let mut texts: Vec<(String, String)> =
        sections.map(|section| (text(&section["id"]).to_owned(), part(section))).collect();
    texts.push(("about".to_owned(), head.trim_end().to_owned() + "\n"));
    texts.push(("fleet".to_owned(), fleet(report)));
    texts
}

/// The files of all curves.
pub(super) fn pictures(report: &Value) -> Vec<(String, String)> {
    let charts = list(&report["sections"])
        .iter()
        .flat_map(|section| list(&section["charts"]).iter().map(move |chart| (section, chart)));
    charts.map(|(section, chart)| (format!("docs/{}", file(chart)), chart::svg(section, chart))).collect()
}

/// From `docs/` on.
fn file(chart: &Value) -> String {
    format!("performance/{}.svg", text(&chart["id"]))
}

/// The curves of a section and its table.
fn part(section: &Value) -> String {
    let charts = list(&section["charts"]).iter();
    let pictures = charts.map(|chart| format!("![{}]({})\n", text(&chart["title"]), file(chart)));
    pictures.collect::<String>() + "\n" + &table(section)
}

/// A fleet that is larger than anything that is measured here.
const PROCESSES: f64 = 100_000.0;
const LOCKS: f64 = 10_000_000.0;
/// The default ttl, of which a third passes between renewals.
const TTL_S: f64 = 30.0;
/// How much of a Redis server, which has one thread for commands, is given to renewals: the rest is for everything else.
const OF_REDIS: f64 = 0.5;
/// How many processors a leader of etcd gives to them.
const OF_ETCD: f64 = 2.0;
/// `maxclients` of Redis, by default.
const MAX_CLIENTS: f64 = 10_000.0;
/// What a node may have in memory, in bytes.
const MEMORY: f64 = 8e9;

/// What this fleet takes, from the figures that were measured.
fn fleet(report: &Value) -> String {
    let redis = |metric: &str| last(report, "clients", metric);
    let of_lock = |metric: &str| last(report, "held", metric);
    let per_s = LOCKS / (TTL_S / 3.0);
    let processors = [redis("renewal_renewal_us"), of_lock("etcd_renewal_us")].map(|us| us.map(|us| us * per_s / 1e6));
    let links = redis("renewal_connections").map(|count| count * PROCESSES);
    let memory = [
        of_lock("redis_server_bytes")
            .zip(redis("renewal_connection_bytes"))
            .map(|(lock, client)| lock * LOCKS + client * PROCESSES),
        of_lock("etcd_server_bytes").map(|lock| lock * LOCKS),
    ];
    let nodes = |amounts: [Option<f64>; 2], most: [f64; 2]| {
        [0, 1].map(|at| amounts[at].map(|amount| (amount / most[at]).ceil()))
    };
    let client_percent = redis("renewal_renewal_client_us").map(|us| us * per_s / PROCESSES / 1e4);
    let rows: [(&str, [Option<f64>; 2]); 9] = [
        ("renewals per second: locks / (ttl / 3)", [Some(per_s); 2]),
        (
            "µs of the server for a renewal, as measured above",
            [redis("renewal_renewal_us"), of_lock("etcd_renewal_us")],
        ),
        ("processors of servers for renewals", processors),
        (
            "**nodes, or clusters, for that**: half of a processor of each Redis, two of each leader",
            nodes(processors, [OF_REDIS, OF_ETCD]),
        ),
        ("memory for locks and connections, in GB", memory.map(|bytes| bytes.map(|bytes| bytes / 1e9))),
        ("**nodes, or clusters, for that**: 8 GB each", nodes(memory, [MEMORY, MEMORY])),
        ("connections, if every process opens those of one server", [links, None]),
        ("**nodes for that**: 10,000 each, the default of `maxclients`", nodes([links, None], [MAX_CLIENTS; 2])),
        ("% of a processor in each process for the renewal of its 100 locks", [client_percent, None]),
    ];
    let mut page = String::from("| | Redis | etcd |\n|---|--:|--:|\n");
    for (what, [redis, etcd]) in rows {
        page.push_str(&format!("| {what} | {} | {} |\n", number(&json!(redis)), number(&json!(etcd))));
    }
    page
}

/// The figure of the last row of a section that has it: where the curve ends.
fn last(report: &Value, section: &str, metric: &str) -> Option<f64> {
    let section = list(&report["sections"]).iter().find(|found| text(&found["id"]) == section)?;
    list(&section["rows"]).iter().rev().find_map(|row| row["median"][metric].as_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Value {
        let chart = json!({ "id": "held", "title": "T", "x": "x", "y": "y", "curves": [] });
        let held = json!({
            "id": "held",
            "charts": [chart],
            "columns": [],
            "rows": [
                { "name": "1", "median": { "redis_server_bytes": 900.0 } },
                { "name": "10", "median": { "redis_server_bytes": 200.0, "etcd_renewal_us": 40.0 } },
            ],
        });
        let renewal =
            json!({ "renewal_renewal_us": 5.0, "renewal_connections": 2.0, "renewal_connection_bytes": 10_000.0 });
        let clients =
            json!({ "id": "clients", "charts": [], "columns": [], "rows": [{ "name": "1", "median": renewal }] });
        json!({ "about": {}, "left_out": { "x": "y" }, "sections": [held, clients] })
    }

    #[test]
    fn a_fleet_is_computed_from_the_ends_of_the_curves() {
        let page = fleet(&report());
        assert!(page.contains("| renewals per second: locks / (ttl / 3) | 1000000 | 1000000 |"), "{page}");
        assert!(page.contains("| processors of servers for renewals | 5 | 40 |"), "{page}");
        assert!(page.contains("half of a processor of each Redis, two of each leader | 10 | 20 |"), "{page}");
        assert!(page.contains("in GB | 3 | – |") && page.contains("`maxclients` | 20 | – |"), "{page}");
    }

    #[test]
    fn every_section_has_a_text_and_every_chart_a_file() {
        let names: Vec<String> = texts(&report()).into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["held", "clients", "about", "fleet"]);
        let files: Vec<String> = pictures(&report()).into_iter().map(|(file, _)| file).collect();
        assert_eq!(files, ["docs/performance/held.svg"]);
    }
}

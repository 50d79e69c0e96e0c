//! The scripts: their sources, composed of shared parts, and their digests.

use std::sync::LazyLock;

/// A Lua script.
#[derive(Debug)]
pub struct Script {
    name: &'static str,
    source: &'static str,
    sha1: String,
}

impl Script {
    fn new(name: &'static str, source: &'static str) -> Self {
        let sha1 = sha1_smol::Sha1::from(source).digest().to_string();
        Self { name, source, sha1 }
    }

    /// What it is called, in errors.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The whole source.
    #[must_use]
    pub fn source(&self) -> &'static str {
        self.source
    }

    /// The digest that the server knows it by: 40 hexadecimal digits.
    #[must_use]
    pub fn sha1(&self) -> &str {
        &self.sha1
    }

    /// The first command that line `number` (from 1) calls, in capitals.
    pub(crate) fn command_at(&self, number: usize) -> Option<&'static str> {
        let line = self.source.lines().nth(number.checked_sub(1)?)?;
        let rest = line.split_once("call('")?.1;
        rest.split_once('\'').map(|(command, _)| command)
    }
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $constant:ident = $name:literal: $($part:literal)+;)+) => {
        $($(#[$doc])* pub(crate) static $constant: LazyLock<Script> =
            LazyLock::new(|| Script::new($name, concat!($(include_str!(concat!("scripts/", $part, ".lua"))),+)));)+

        /// All scripts, for servers that want them loaded beforehand and for tests.
        pub static SCRIPTS: LazyLock<Vec<&'static Script>> = LazyLock::new(|| vec![$(&*$constant),+]);
    };
}

scripts! {
    ACQUIRE = "acquire":
        "acquire" "part/now" "part/fence" "acquire_free" "part/refusal" "part/wait" "part/queue" "part/join"
        "acquire_busy" "acquire_grant";
    RELEASE = "release":
        "release" "part/refusal" "release_rest" "part/turn" "part/now" "part/fence" "part/queue" "release_wake";
    ABANDON = "abandon": "abandon" "part/refusal" "part/turn" "part/now" "part/fence" "part/queue" "abandon_do";
    RENEW = "renew": "renew" "part/lengthen" "renew_do";
    INSPECT = "inspect": "inspect" "part/now" "inspect_do";
    FORCE_RELEASE = "force_release":
        "part/refusal" "force_release" "part/turn" "part/now" "part/fence" "part/queue" "release_wake";
    PASS = "pass": "pass" "part/turn" "part/now" "part/fence" "part/queue" "release_wake";
    ENTER = "enter":
        "enter" "part/refusal" "part/now" "part/fence" "part/wait" "part/queue" "part/join" "enter_do";
    EXIT = "exit": "part/refusal" "exit" "part/turn" "part/now" "part/fence" "part/queue" "exit_wake";
    ABANDON_ENTRY = "abandon_entry":
        "abandon_entry" "part/refusal" "part/turn" "part/now" "part/fence" "part/queue" "abandon_entry_do";
    RENEW_HOLD = "renew_hold": "renew_hold" "part/refusal" "part/lengthen" "renew_hold_do";
    VOTE = "vote":
        "vote" "part/now" "part/vote_fence" "acquire_free" "part/refusal" "part/wait" "part/queue" "part/join"
        "acquire_busy" "acquire_grant";
    RAISE = "raise": "part/refusal" "part/now" "raise";
    ENROLL = "enroll": "enroll";
    RIGHTS = "rights": "rights";
    QUEUE_PUSH = "queue_push":
        "queue/push" "queue/part/keys" "queue/part/clock" "queue/part/seldom" "queue/part/limit" "queue/part/insert"
        "queue/part/find" "queue/part/known" "queue/push_replace" "queue/part/form" "queue/part/key"
        "queue/part/remove" "queue/push_replace_end" "queue/part/until_when" "queue/push_seldom"
        "queue/part/seldom_end" "queue/push_do";
    QUEUE_TURN = "queue_turn":
        "queue/turn" "queue/part/keys" "queue/part/clock" "queue/part/seldom" "queue/part/form" "queue/part/limit"
        "queue/part/insert" "queue/part/key" "queue/part/bury" "queue/part/settle_other" "queue/part/unusual"
        "queue/part/listen" "queue/turn_seldom" "queue/part/seldom_end" "queue/part/settle" "queue/part/receive"
        "queue/turn_do";
    QUEUE_EXTEND = "queue_extend": "queue/extend" "queue/part/keys" "queue/part/clock" "queue/extend_do";
    QUEUE_CANCEL = "queue_cancel":
        "queue/cancel" "queue/part/keys" "queue/part/clock" "queue/part/form" "queue/part/limit" "queue/part/insert"
        "queue/part/key" "queue/part/find" "queue/part/remove" "queue/part/look_up" "queue/cancel_do";
    QUEUE_RESCHEDULE = "queue_reschedule":
        "queue/reschedule" "queue/part/keys" "queue/part/clock" "queue/part/form" "queue/part/limit"
        "queue/part/insert" "queue/part/key" "queue/part/find" "queue/part/remove" "queue/part/look_up"
        "queue/reschedule_do";
    QUEUE_GIVE_TURN = "queue_give_turn":
        "queue/give_turn" "queue/part/keys" "queue/part/clock" "queue/part/form" "queue/part/limit" "queue/part/insert"
        "queue/part/look_up" "queue/give_turn_do";
    QUEUE_GET = "queue_get":
        "queue/get" "queue/part/keys" "queue/part/clock" "queue/part/form" "queue/part/find" "queue/part/look_up"
        "queue/get_do";
    QUEUE_STATS = "queue_stats": "queue/stats" "queue/part/keys" "queue/part/clock" "queue/stats_do";
    QUEUE_PAUSE = "queue_pause": "queue/pause" "queue/part/keys" "queue/part/clock" "queue/pause_do";
    QUEUE_RESUME = "queue_resume":
        "queue/resume" "queue/part/keys" "queue/part/clock" "queue/part/limit" "queue/part/insert" "queue/resume_do";
    QUEUE_PURGE = "queue_purge":
        "queue/purge" "queue/part/keys" "queue/part/clock" "queue/part/form" "queue/part/limit" "queue/part/insert"
        "queue/part/key" "queue/part/find" "queue/part/remove" "queue/purge_do";
    QUEUE_DEAD_LIST = "queue_dead_list":
        "queue/dead_list" "queue/part/keys" "queue/part/clock" "queue/part/form" "queue/part/behind" "queue/dead_list_do";
    QUEUE_DEAD_REDRIVE = "queue_dead_redrive":
        "queue/dead_redrive" "queue/part/keys" "queue/part/clock" "queue/part/form" "queue/part/limit"
        "queue/part/insert" "queue/part/look_up" "queue/part/selected" "queue/part/until_when" "queue/dead_redrive_do";
    QUEUE_DEAD_PURGE = "queue_dead_purge":
        "queue/dead_purge" "queue/part/keys" "queue/part/clock" "queue/part/form" "queue/part/limit"
        "queue/part/insert" "queue/part/key" "queue/part/remove" "queue/part/look_up" "queue/part/selected"
        "queue/dead_purge_do";
    QUEUE_LISTEN = "queue_listen":
        "queue/listen" "queue/part/keys" "queue/part/clock" "queue/part/limit" "queue/part/insert" "queue/part/listen"
        "queue/listen_do";
    QUEUE_LIMIT = "queue_limit":
        "queue/limit" "queue/part/keys" "queue/part/clock" "queue/part/limit" "queue/part/insert" "queue/limit_do";
    QUEUE_PAGE = "queue_page":
        "queue/page" "queue/part/keys" "queue/part/clock" "queue/part/form" "queue/part/find" "queue/part/behind"
        "queue/page_do";
    QUEUE_LIST = "queue_list": "queue/list";
    QUEUE_LIVING = "queue_living": "queue/living" "part/refusal" "queue/living_do";
    TYPES = "types": "types";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_script_says_what_it_takes_and_why_it_is_atomic() {
        for script in SCRIPTS.iter() {
            for part in ["-- KEYS ", "-- ARGV ", "-- Returns ", "-- Atomic"] {
                assert!(script.source().contains(part), "{} lacks {part:?}", script.name());
            }
            assert_eq!(script.sha1().len(), 40);
            assert!(script.source().contains(&format!("-- {}: ", script.name())));
        }
    }

    #[test]
    fn a_line_names_its_command() {
        let line = RENEW.source().lines().position(|line| line.contains("MGET")).unwrap() + 1;
        assert_eq!(RENEW.command_at(line), Some("MGET"));
        assert_eq!(RENEW.command_at(1), None);
        assert_eq!(RENEW.command_at(0), None);
        assert_eq!(RENEW.command_at(10_000), None);
    }

    #[test]
    fn the_rights_probe_tries_every_command() {
        let tried: Vec<&str> =
            RIGHTS.source().lines().filter_map(|line| line.strip_prefix("try('")?.split('\'').next()).collect();
        for script in SCRIPTS.iter() {
            for number in 1..=script.source().lines().count() {
                let Some(command) = script.command_at(number) else { continue };
                if command == "INFO" {
                    continue; // an optional right, which only a ballot that asks for seniority needs
                }
                assert!(tried.contains(&command), "{} uses {command}, which is not tried", script.name());
            }
        }
    }
}

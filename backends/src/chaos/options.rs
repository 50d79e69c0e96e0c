//! What to run: the words of the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::Parser as _;
use tenure_conformance::{BoxError, mutants};

use super::fault::Data;
use super::jobs::LIES;
use super::profile::Profile;

/// What the clients use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Locks.
    Locks,
    /// Locks, and transactions of the tasks' own that the locks guard.
    Guards,
    /// A delay queue.
    Queue,
}

/// The targets of faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Harm {
    /// Client processes: killed and stopped.
    pub clients: bool,
    /// Servers: killed, stopped, and what else their kind suffers.
    pub servers: bool,
    /// Connections: cut, silent, late.
    pub links: bool,
}

/// A run.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that this is, which serves as the client process as well.
    pub program: PathBuf,
    pub(super) profile: &'static Profile,
    /// See [`Subject`].
    pub subject: Subject,
    /// For how long there are faults.
    pub span: Duration,
    /// Decides which faults there are, and what each task does.
    pub seed: u64,
    /// Client processes.
    pub processes: usize,
    /// Tasks of each process that take turns on the hot names.
    pub tasks: u32,
    /// Names that all clients want.
    pub names: u32,
    /// Tasks of each process that hold a lock for several ttls; each name of theirs is wanted by two processes.
    pub steady: u32,
    /// See [`Data`].
    pub data: Data,
    /// See [`Harm`].
    pub harm: Harm,
    /// A mutant of the driver that the clients use, or a consumer that lies, which the judge has to catch.
    pub broken: Option<String>,
    /// How long all clients may need to end after the last fault; the backend's own bound if it is not given.
    pub patience: Option<Duration>,
    /// By how much the judge's patience is stretched: `TENURE_SLACK`, else 1.
    pub slack: f64,
    /// Where the logs are left, in a new or empty folder; nowhere if it is not given.
    pub logs: Option<PathBuf>,
    /// One line instead of a table, if nothing is wrong.
    pub brief: bool,
}

impl Options {
    /// A run on this backend with the defaults.
    ///
    /// # Errors
    ///
    /// There is no such backend.
    pub fn new(program: PathBuf, backend: &str) -> Result<Self, BoxError> {
        Ok(Self {
            program,
            profile: Profile::of(backend)?,
            subject: Subject::Locks,
            span: Duration::from_secs(30),
            seed: 1,
            processes: 4,
            tasks: 5,
            names: 3,
            steady: 8,
            data: Data::Kept,
            harm: Harm { clients: true, servers: true, links: true },
            broken: None,
            patience: None,
            slack: tenure_conformance::Options::default().slack,
            logs: None,
            brief: false,
        })
    }

    /// Reads the words of the command line, without the name of the program.
    ///
    /// # Errors
    ///
    /// A text for the user who wrote them.
    pub fn parse(program: PathBuf, words: &[String]) -> Result<Self, BoxError> {
        let unprefixed = |error: clap::Error| error.to_string().trim_start_matches("error: ").to_owned();
        let words = Words::try_parse_from(words).map_err(unprefixed)?;
        let options = Self {
            subject: match (words.queue, words.guard) {
                (true, _) => Subject::Queue,
                (false, true) => Subject::Guards,
                (false, false) => Subject::Locks,
            },
            span: Duration::from_secs(words.seconds),
            seed: words.seed,
            processes: words.processes,
            tasks: words.tasks,
            names: words.names,
            steady: words.steady,
            data: words.data,
            harm: words.faults,
            broken: words.broken,
            patience: words.patience.map(Duration::from_secs),
            logs: words.logs,
            brief: words.brief,
            ..Self::new(program, &words.backend)?
        };
        if options.subject == Subject::Queue && (options.data == Data::Lost || !options.profile.has_queues()) {
            return Err("queues are those of one server or of a cluster, which keep their data; an asynchronous standby may lack some".into());
        }
        if options.subject == Subject::Guards && !options.profile.has_guards() {
            return Err("guards are of PostgreSQL and MariaDB, over servers that keep what was committed".into());
        }
        if options.data == Data::Lost && !options.profile.may_lose_data() {
            return Err(
                "a file, a PostgreSQL server, and the members of an etcd cluster promise nothing once their data is lost"
                    .into(),
            );
        }
        Ok(options)
    }
}

/// Runs client processes over real servers that are harmed, and judges them.
#[derive(clap::Parser)]
#[command(name = "chaos", no_binary_name = true)]
struct Words {
    /// Which servers, and through which library
    #[arg(long, value_name = "ID", value_parser = Profile::ids())]
    backend: String,
    /// For how long there are faults
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Decides which faults there are, and what each task does
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Client processes
    #[arg(long, default_value_t = 4, value_parser = at_least_one::<usize>)]
    processes: usize,
    /// Tasks of each process that take turns on the hot names
    #[arg(long, default_value_t = 5, value_parser = at_least_one::<u32>)]
    tasks: u32,
    /// Names that everybody wants
    #[arg(long, default_value_t = 3, value_parser = at_least_one::<u32>)]
    names: u32,
    /// Tasks of each process that hold a lock for several ttls
    #[arg(long, default_value_t = 8)]
    steady: u32,
    /// A delay queue in place of locks
    #[arg(long)]
    queue: bool,
    /// Transactions that the locks guard, and no lost update among them
    #[arg(long, conflicts_with = "queue")]
    guard: bool,
    /// What happens to the data of a server that is killed
    #[arg(long, value_enum, default_value_t = Data::Kept)]
    data: Data,
    /// What is harmed: none, or some of clients,servers,links
    #[arg(long, value_name = "KINDS", default_value = "clients,servers,links", value_parser = harm)]
    faults: Harm,
    /// A mutant of the driver that the clients use, or a consumer that lies, which the judge has to catch
    #[arg(long, value_name = "ID", value_parser = mutant)]
    broken: Option<String>,
    /// How many seconds everybody may need to come to an end after the last fault
    #[arg(long, value_name = "SECONDS")]
    patience: Option<u64>,
    /// Where the logs are left: a new or empty folder
    #[arg(long, value_name = "FOLDER")]
    logs: Option<PathBuf>,
    /// One line instead of a table, if nothing is wrong
    #[arg(long)]
    brief: bool,
}

pub(super) fn hot_name(number: u32) -> String {
    format!("hot-{number}")
}

/// The name that belongs to the `number`th steady task of a process, and that another process wants as well.
pub(super) fn steady_name(process: usize, number: u32) -> String {
    format!("steady-{process}-{number}")
}

fn at_least_one<T: std::str::FromStr<Err = std::num::ParseIntError> + From<u8> + PartialOrd>(
    text: &str,
) -> Result<T, BoxError> {
    let number: T = text.parse()?;
    if number < T::from(1) { Err("it is at least 1".into()) } else { Ok(number) }
}

fn harm(list: &str) -> Result<Harm, BoxError> {
    let mut harm = Harm { clients: false, servers: false, links: false };
    for kind in list.split(',').filter(|kind| *kind != "none") {
        match kind {
            "clients" => harm.clients = true,
            "servers" => harm.servers = true,
            "links" => harm.links = true,
            _ => return Err("it is none, or some of clients,servers,links".into()),
        }
    }
    Ok(harm)
}

fn mutant(id: &str) -> Result<String, BoxError> {
    if LIES.contains(&id) {
        return Ok(id.to_owned());
    }
    let found = mutants::all().find(|mutant| mutant.id == id);
    Ok(found.ok_or("there is no such mutant; conformance-tests/src/mutants has them")?.id.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &str) -> Result<Options, BoxError> {
        Options::parse("chaos".into(), &words.split(' ').map(String::from).collect::<Vec<_>>())
    }

    #[test]
    fn words_are_read_and_what_makes_no_sense_is_refused() {
        let options = parse("--seed 7 --backend redis/single --seconds 9 --faults clients,links --data lost").unwrap();
        assert_eq!((options.seed, options.span.as_secs(), options.data), (7, 9, Data::Lost));
        assert!(options.harm.clients && options.harm.links && !options.harm.servers);
        for bad in ["--seed 7", "--backend none/such", "--backend redis/single --data some"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        for bad in ["--processes 0", "--faults moon", "--broken no/such", "--seed", "--what 1"] {
            assert!(parse(&format!("--backend redis/single {bad}")).is_err(), "{bad}");
        }
        assert_eq!(parse("--queue --backend fred/single --seed 2").unwrap().subject, Subject::Queue);
        assert!(parse("--queue --backend redlock/3-live").is_err());
        assert_eq!(parse("--guard --backend postgres/logged").unwrap().subject, Subject::Guards);
        for bad in ["--guard --backend redis/single", "--guard --queue --backend mysql/mariadb"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
        #[cfg(feature = "etcd")]
        assert!(parse("--backend etcd/single --data lost").is_err());
    }
}

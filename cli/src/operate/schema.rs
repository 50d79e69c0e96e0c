//! `tenure schema`: the statements that make tenure's tables, for a database whose programs may not run them.

use std::time::Duration;

use crate::exit::Failure;
use crate::printer::Printer;

/// What `--help` says below the options.
const AFTER_HELP: &str = "\
tenure schema postgres | psql --set ON_ERROR_STOP=1 DATABASE
tenure schema mysql | mysql DATABASE";

/// Print the SQL that makes tenure's tables
#[derive(Debug, clap::Args)]
#[command(after_help = AFTER_HELP)]
pub(crate) struct Schema {
    /// PostgreSQL: leases survive a crash of the server, and each grant costs a flush
    #[arg(long)]
    logged: bool,
    /// PostgreSQL: the longest lease of any client [default: 1m]
    #[arg(long, value_name = "TIME", value_parser = crate::duration::parse)]
    longest_ttl: Option<Duration>,
    /// postgres or mysql
    #[arg(hide_possible_values = true)]
    database: Database,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Database {
    Postgres,
    Mysql,
}

pub(crate) fn schema(command: &Schema, printer: Printer) -> Result<u8, Failure> {
    let sql = match command.database {
        Database::Postgres => postgres(command)?,
        Database::Mysql if command.logged || command.longest_ttl.is_some() => {
            return Err(Failure::usage("--logged and --longest-ttl belong to PostgreSQL"));
        }
        Database::Mysql => mysql()?,
    };
    printer.bytes(sql.as_bytes())?;
    Ok(0)
}

/// One transaction: after an error nothing is there.
#[cfg(feature = "postgres")]
fn postgres(command: &Schema) -> Result<String, Failure> {
    let mut install = tenure::postgres::Install { logged: command.logged, ..Default::default() };
    if let Some(longest) = command.longest_ttl {
        install.longest_ttl = tenure::driver::Ttl::new(longest)?.get();
    }
    Ok(format!("BEGIN;\n{}\nCOMMIT;\n", tenure::postgres::install_sql(install)))
}

#[cfg(not(feature = "postgres"))]
fn postgres(_: &Schema) -> Result<String, Failure> {
    Err(Failure::left_out("statements for PostgreSQL", "postgres"))
}

#[cfg(feature = "mysql")]
fn mysql() -> Result<String, Failure> {
    Ok(tenure::mysql::install_sql())
}

#[cfg(not(feature = "mysql"))]
fn mysql() -> Result<String, Failure> {
    Err(Failure::left_out("statements for MySQL", "mysql"))
}

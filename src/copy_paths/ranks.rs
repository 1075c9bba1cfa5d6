//! The ranks, from outside: started, told what to do all at the same time, and asked what it took.

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;

use anyhow::Context;

use super::destination::Kind;
use super::rank::{Answer, DEVICES, Devices, NAME, Order, Pass, Setup};
use super::source::Span;
use crate::launch::ending::Ending;
use crate::probe::device::cuda::Link;
use crate::run::death::signal_name;

/// Processes that copy, one a rank.
pub struct Ranks {
    ranks: Vec<Rank>,
    /// Where they find the driver, for as long as they run.
    _link: Option<Link>,
}

struct Rank {
    child: Child,
    /// Taken when the rank is told to end.
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Whether it owes an answer.
    is_busy: bool,
}

impl Ranks {
    /// Starts so many, each with its destination; all are ready when it returns. They inherit that signals are held: what a
    /// terminal sends to all ends them only as it ends the measurement.
    pub fn start(
        count: usize,
        files: &[Arc<File>],
        tensors: &[Span],
        destination: Kind,
        library: Option<&Path>,
        signals: &mut Ending,
    ) -> anyhow::Result<Ranks> {
        let link =
            library.filter(|_| destination != Kind::Host).map(Link::to).transpose().map_err(anyhow::Error::msg)?;
        let mut ranks = Ranks { ranks: Vec::new(), _link: None };
        for _ in 0..count {
            ranks.ranks.push(Rank::start(files, tensors, destination, library.zip(link.as_ref()))?);
        }
        ranks._link = link;
        for rank in &mut ranks.ranks {
            match rank.answer(signals)? {
                Answer::Ready => {}
                Answer::Refused(why) => anyhow::bail!(why),
                Answer::Done(_) => anyhow::bail!("a rank answered before it was asked"),
            }
        }
        Ok(ranks)
    }

    /// One pass of all ranks at once: what each took; the reason where one could not do it.
    ///
    /// # Errors
    ///
    /// Where a rank has died, or a signal came.
    pub fn pass(&mut self, order: Order, signals: &mut Ending) -> anyhow::Result<Result<Vec<Pass>, String>> {
        let mut line = serde_json::to_string(&order)?;
        line.push('\n');
        for rank in &mut self.ranks {
            if let Some(orders) = &mut rank.orders {
                // Of one that has died the answer tells.
                let _ = orders.write_all(line.as_bytes());
                rank.is_busy = true;
            }
        }
        // Every answer is taken, whatever the others say: the next one belongs to the next order.
        let answers: Vec<Answer> =
            self.ranks.iter_mut().map(|rank| rank.answer(signals)).collect::<anyhow::Result<_>>()?;
        let pass = |answer| match answer {
            Answer::Done(pass) => Ok(pass),
            Answer::Refused(why) => Err(why),
            Answer::Ready => Err("a rank answered what it was not asked".to_owned()),
        };
        Ok(answers.into_iter().map(pass).collect())
    }
}

impl Rank {
    fn start(
        files: &[Arc<File>],
        tensors: &[Span],
        destination: Kind,
        library: Option<(&Path, &Link)>,
    ) -> anyhow::Result<Rank> {
        // Duplicates that the rank inherits; ours are closed again when it has been started.
        let inherited: Vec<OwnedFd> = files.iter().map(nix::unistd::dup).collect::<Result<_, _>>()?;
        let setup = Setup {
            files: inherited.iter().map(AsRawFd::as_raw_fd).collect(),
            tensors: tensors.to_vec(),
            destination,
            cuda_library: library.map(|(path, _)| path.canonicalize().unwrap_or_else(|_| path.to_owned())),
        };
        let mut command = program()?;
        if let Some((_, link)) = library {
            link.hand_to(&mut command);
        }
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("a rank could not be started")?;
        drop(inherited);
        let (Some(mut orders), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            anyhow::bail!("a rank without pipes");
        };
        let mut line = serde_json::to_string(&setup)?;
        line.push('\n');
        let _ = orders.write_all(line.as_bytes());
        Ok(Rank { child, orders: Some(orders), answers: BufReader::new(answers), is_busy: true })
    }

    fn answer(&mut self, signals: &mut Ending) -> anyhow::Result<Answer> {
        let mut line = String::new();
        if self.answers.buffer().is_empty() {
            signals.readable(self.answers.get_ref())?;
        }
        if self.answers.read_line(&mut line)? == 0 {
            anyhow::bail!(self.death());
        }
        self.is_busy = false;
        Ok(serde_json::from_str(&line)?)
    }

    /// What became of a rank that says nothing any more.
    fn death(&mut self) -> String {
        self.orders = None;
        match self.child.wait().map(|status| (status.signal(), status.code())) {
            Ok((Some(libc::SIGBUS), _)) => {
                "a rank was ended by SIGBUS: the file was cut short, or could not be read, while it was mapped"
                    .to_owned()
            }
            Ok((Some(libc::SIGKILL), _)) => {
                "a rank was ended by SIGKILL: most likely for lack of memory (--max-memory bounds it)".to_owned()
            }
            Ok((Some(signal), _)) => format!("a rank was ended by {}", signal_name(signal)),
            Ok((None, code)) => format!("a rank ended with status {}", code.unwrap_or_default()),
            Err(error) => format!("a rank ended: {error}"),
        }
    }
}

/// This program, as a rank.
fn program() -> anyhow::Result<Command> {
    let mut command = Command::new(std::env::current_exe().context("this program's own file")?);
    command.arg(NAME);
    Ok(command)
}

/// What there is to know of the devices, asked by a process of its own, which a driver may crash.
pub fn devices(library: Option<&Path>) -> Devices {
    asked(library).unwrap_or_else(|why| Devices { cuda: Err(why), links: Vec::new() })
}

fn asked(library: Option<&Path>) -> Result<Devices, String> {
    let link = library.map(Link::to).transpose()?;
    let mut command = program().map_err(|error| format!("{error:#}"))?;
    command.arg(DEVICES).args(library.map(|path| path.canonicalize().unwrap_or_else(|_| path.to_owned())));
    if let Some(link) = &link {
        link.hand_to(&mut command);
    }
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().map_err(|error| error.to_string())?;
    serde_json::from_slice(&output.stdout)
        .map_err(|_| "the process that asked the driver ended without a word".to_owned())
}

impl Drop for Rank {
    fn drop(&mut self) {
        // The end of its orders is a rank's end; one that is about a copy would first come to that's end.
        self.orders = None;
        if self.is_busy {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

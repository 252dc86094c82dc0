//! Going on from one data folder when the majority of an ensemble is lost for good.
//!
//! Nobody can know then what the others had: entries that a majority has acknowledged may be missing in this folder. So
//! it is an operator who decides, and the ensemble that goes on is another one, with an id of its own: whatever folder
//! of the old one turns up again, it is refused by the new one's servers, and they by it.

use stoa_core::{GoesOn, HistoryId, timeline_of};
use stoa_storage::{Entry, Log, Options as LogOptions};
use stoa_tree::Options as TreeOptions;

use crate::config::Settings;
use crate::file_disk::FileDisk;
use crate::recovery::Recovering;
use crate::{clock, partitions_file, random};

/// Makes the folder of these settings that of an ensemble of this server alone, if that is `confirmed`. Returns what
/// to tell the operator.
pub(crate) fn recover(settings: &Settings, confirmed: bool) -> Result<String, String> {
    let folder = settings.data_dir.display();
    let failed = |error: &dyn std::fmt::Display| format!("the data folder {folder}: {error}");
    if !partitions_file::is_made(&settings.data_dir) {
        return Err(failed(&"it is not one of Stoa's, so there is nothing to go on from (setting data-dir)"));
    }
    let server = settings.server_id.unwrap_or(1);
    let partitions = partitions_file::read(&settings.data_dir)?;
    let mut disk = FileDisk::open(&settings.data_dir).map_err(|error| error.to_string())?;
    let options = LogOptions {
        segment_bytes: settings.segment_bytes,
        snapshots_kept: settings.snapshots_kept.max(1) as usize,
        must_exist: true,
        now_ms: clock::wall_ms(),
        ..LogOptions::default()
    };
    let mut recovering = Recovering::new(&TreeOptions::default(), partitions);
    let mut log = Log::open(&mut disk, &options, &mut recovering).map_err(|error| failed(&error))?;
    let id = HistoryId(random::bytes()?);
    let GoesOn { record, position, voters, history, uncertain, zxid, znodes } =
        recovering.go_on_alone(server, id).map_err(|error| failed(&error))?;
    let voters = voters.iter().map(u8::to_string).collect::<Vec<_>>().join(", ");
    let found = format!(
        "the data folder {folder} is of the ensemble {history}, in which the servers {voters} vote; it has {znodes} \
         znodes, its last update is {zxid:#x}, and of {uncertain} entries it is not known whether a majority has them"
    );
    if !confirmed {
        return Err(format!(
            "{found}. With --yes, server {server} goes on alone from what is here, as another ensemble. What the other \
             servers have acknowledged and this one never had is lost then, and their folders are of no use to it. Take \
             the folder of the server that has the highest last update. Nothing was changed"
        ));
    }
    let entry = Entry { timeline: timeline_of(partitions), position, payload: &[&record] };
    log.append(&mut disk, &[entry]).map_err(|error| failed(&error))?;
    Ok(format!(
        "{found}.\nFrom now on it is of the ensemble {id}, in which server {server} votes alone. Start it with the \
         servers that there are to be in its settings, and each of the others with an empty data folder."
    ))
}

//! What `--help` says, of the tool and of each command.

pub(crate) const OVERVIEW: &str = "\
nrdma: RDMA buffers and fragmented jobs

Usage: nrdma COMMAND [OPTIONS]

  demo      renders a picture in fragments on several processes or hosts
  serve     stays and works for whoever connects: demo, bench and doctor --peer
  doctor    finds what is in the way of RDMA on this machine, and says what to do
  token     makes a secret that lets hosts meet

nrdma COMMAND --help tells more of each; nrdma --version.
Exit code: 0 it worked, 1 it did not, 64 the command line is wrong.
NRDMA_LOG=error|warn|info|debug|trace shows the library's log on stderr.
";

pub(crate) const DEMO: &str = "\
nrdma demo: renders a picture in fragments on several processes or hosts

Usage: nrdma demo [OPTIONS]

  --hosts N        worker processes to start, 0 to 64 [3]; 0 renders in this
                   process alone
  --connect ADDR   also has the host render that serves there (host:port or
                   unix:/path); may be given again; then no worker processes are
                   started unless --hosts says so
  --size WxH       picture's size in pixels [1280x720]
  --out FILE       where the PNG goes [frame.png]
  --tile N         edge of a tile in pixels, 8 to 1024 [128]; below 128 a result
                   is smaller than 64 KiB and shares its pages with others, so
                   that it is copied into place
  --transport T    only these engines, a comma list of inproc, shm, tcp; best
                   first [all]
  --timeout MS     silence after which a host counts as lost [5000]
  --kill-one       kills one worker (SIGKILL) when half of the picture is there
  --no-verify      does not compare the picture with one rendered here

Exit code: 0 the picture is complete and right, 1 it is not or something
failed, 64 the command line is wrong.
";

pub(crate) const SERVE: &str = "\
nrdma serve: stays and works for whoever connects: demo, bench, doctor --peer

Usage: nrdma serve ADDRESS [OPTIONS]

ADDRESS is host:port (port 0: any; the host may be an interface or a CIDR) or
unix:/path. The address that it can be reached at is printed; it serves until it
is killed.

  --name NAME      what others see
  --threads N      fragments at a time [cores]
  --transport T    only these engines, best first [all]
  --timeout MS     silence after which a host counts as lost [5000]

Beyond this host's own 127.0.0.1 both sides need the same token:
  nrdma token > FILE; chmod 600 FILE; export NRDMA_AUTH_TOKEN_FILE=FILE

Exit code: 1 it cannot listen, 64 the command line is wrong.
";

pub(crate) const TOKEN: &str = "\
nrdma token: makes a secret that lets hosts meet

Usage: nrdma token > FILE; chmod 600 FILE; export NRDMA_AUTH_TOKEN_FILE=FILE

Prints 32 random bytes in hexadecimal. All hosts need the same file.
";

pub(crate) const DOCTOR: &str = "\
nrdma doctor: finds what is in the way of RDMA on this machine

Usage: nrdma doctor [OPTIONS]

Each line has a level (ok, info, WARN, FAIL), the check's name and the fact that
was seen; below it why that matters and the command that changes it. Then known
bytes are sent over every path that this machine offers to itself. Nothing is
changed.

  --peer ADDR      also tests the host that serves there (nrdma serve): the way,
                   the engine, latency, bandwidth, results of 64 KiB, 64 MiB and
                   beyond 4 GiB; stops at the first step that fails
  --strict         a WARN is a failure, too
  --json           a JSON document (docs/doctor.md) instead of text
  --no-selftest    reads only, sends nothing

Exit code: 0 no FAIL, 1 a WARN with --strict, 2 a FAIL, 64 the command line is
wrong. NO_COLOR=1 leaves colours out, as does a pipe. NRDMA_SYSROOT=DIR looks
below DIR instead of /.
";

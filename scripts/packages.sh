# packages.sh is read by the scripts that take Debian's packages for another architecture, or
# with all that they depend on. fail and $work are the script's.

# apt_state ARCH makes APT know the packages of an architecture, and none as installed. The
# lists of packages of this machine stay as they are.
apt_state() {
    state=$work/$1/apt
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$work/$1/debs"
    : >"$state/status"
    cat >"$state/apt.conf" <<END
Dir::State "$state"; Dir::State::lists "$state/lists"; Dir::State::status "$state/status"; Dir::Cache "$state/cache";
APT::Architecture "$1"; APT::Architectures { "$1"; }; APT::Sandbox::User ""; APT::Install-Recommends "false";
END
    APT_CONFIG="$state/apt.conf" apt-get -qq update >"$work/apt.log" 2>&1 || apt_failed "$1"
}

# apt_failed ARCH ends the script.
apt_failed() { fail "apt-get could not download Debian's packages for $1: $(tail -n 1 "$work/apt.log")"; }

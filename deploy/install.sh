#!/bin/sh
# Install or upgrade the service under systemd, from this source:
#   sudo sh deploy/install.sh app.py [EXTRA...]
# It makes the user windlass, an environment below /opt, /srv/windlass with your agents,
# /etc/windlass/environment and the units, and brings the journal up to date. What you changed in
# /etc/windlass/environment stays. With DESTDIR it writes below that folder, and makes no user.
set -eu
root=${DESTDIR:-}
app=$1
shift
source=$(cd "$(dirname "$0")" && pwd)
[ $# -gt 0 ] || set -- postgres jwt mcp otel

if [ -z "$root" ]; then
    id windlass > /dev/null 2>&1 \
        || useradd --system --home-dir /var/lib/windlass --shell /usr/sbin/nologin windlass
    owner="-o windlass -g windlass"
else
    owner=
fi

# Beside the one in use, which the service needs until it is restarted.
release=$root/opt/windlass-$(date -u +%Y%m%d%H%M%S)
install -d -m 0755 "$root/opt" "$root/srv/windlass" "$root/etc/windlass" \
    "$root/etc/systemd/system"
sh "$source/build.sh" "$release" serve "$@"
ln -sfn "$release" "$root/opt/windlass"
install -m 0644 "$app" "$root/srv/windlass/app.py"
# shellcheck disable=SC2086 # two options, or none
install -d -m 0700 $owner "$root/var/lib/windlass"

environment=$root/etc/windlass/environment
if [ ! -e "$environment" ]; then
    (
        umask 077
        printf 'WINDLASS_JOURNAL=%s\n' "$root/var/lib/windlass/journal.db" > "$environment"
    )
fi
install -m 0644 "$source"/windlass*.service "$root/etc/systemd/system"

# The lines of the file are NAME=value, as systemd reads them. Root reads it, and the user of the
# service gets the variables.
set -a
# shellcheck disable=SC1090 # written above
. "$environment"
set +a
migrate="$root/opt/windlass/bin/windlass migrate"
case $WINDLASS_JOURNAL in
    *://*) ;;
    # The service makes the file when it is first started.
    *) [ -e "$WINDLASS_JOURNAL" ] || migrate=true ;;
esac
if [ -n "$root" ]; then
    $migrate
    exit
fi
# shellcheck disable=SC2086 # a command and its argument
runuser --user windlass --preserve-environment -- $migrate
systemctl daemon-reload
echo "Put the keys of your providers into $environment, then: systemctl enable --now windlass"

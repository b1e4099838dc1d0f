#!/usr/bin/env bash
# Make the compose file's secrets, once, at random. The folder is closed to others on this machine;
# the files in it must be readable for the containers' own users.
set -euo pipefail
folder=${1:-$(dirname "$0")/secrets}
mkdir -p "$folder"
chmod 700 "$folder"
random() { python3 -c 'import secrets; print(secrets.token_urlsafe(24), end="")'; }
keep() { [ -s "$folder/$1" ] || { printf '%s' "$2" > "$folder/$1"; chmod 444 "$folder/$1"; }; }
keep postgres_password "$(random)"
keep redis_password "$(random)"
keep database_url "postgresql://rollcall:$(cat "$folder/postgres_password")@postgres:5432/rollcall"
keep broker_url "redis://:$(cat "$folder/redis_password")@redis:6379/0"
keep flower_basic_auth "rollcall:$(random)"

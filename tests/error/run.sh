#!/bin/sh
exec sh "$(dirname "$0")/../blocks.sh" error "$@"

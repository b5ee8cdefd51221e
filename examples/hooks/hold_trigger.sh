#!/bin/sh
# Holds the trigger of another system while fanin cannot read. Here that system is a file in FANIN_TRIGGER.
folder=${FANIN_TRIGGER:-/run/trigger}
moment=$(sed 's/.*"moment":"\([a-z-]*\)".*/\1/')

hold() { echo held > "$folder/state"; }
release() { echo released > "$folder/state"; }

case $moment in
  before-start)
    if [ ! -d "$folder" ]; then
      echo "the trigger system is off: $folder is not there"
      exit 1
    fi
    hold ;;
  after-start) release ;;
  before-stop | after-stop | unplanned-end) hold ;;
esac

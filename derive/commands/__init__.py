"""The commands of `derive`, by what they are about; each file has its COMMANDS."""
